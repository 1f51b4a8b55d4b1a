"""Devices that exist only for the compiler: a topology made from a target's text.

Invariant: the devices belong to a compile-only client; no backend of JAX is started for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax

from jax_cmdbuf.errors import CompileError, InputError
from jax_cmdbuf.executable.compile_log import explain

__all__ = ["MESH_AXIS", "Compiled", "data_mesh", "topology_devices"]

MESH_AXIS = "data"


@dataclass(frozen=True)
class Compiled:
    """What either way of compiling returns; the fields are those of ``CompileResult``."""

    serialized: bytes
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def topology_devices(target_text: str, count: int) -> tuple[Any, ...]:
    """``count`` compile-only devices of the described GPU, on one host.

    Raises:
      InputError: XLA cannot read the text, or ``count`` is not positive.
      MissingDependencyError: the CUDA plugin is not installed.
    """
    if count < 1:
        raise InputError(f"--devices must be at least 1, not {count}")
    from jax.experimental import topologies

    try:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=target_text, topology=f"1x1x{count}"
        )
    except Exception as error:  # jaxlib's errors have no common base between releases
        raise explain(str(error)) from error
    devices = tuple(topology.devices)
    if len(devices) != count:
        raise CompileError(f"asked XLA for {count} devices, got {len(devices)}")
    return devices


def data_mesh(devices: tuple[Any, ...]) -> jax.sharding.Mesh:
    """A mesh of one axis, ``MESH_AXIS``, over all devices; of type Auto: XLA completes the shardings."""
    import numpy as np

    return jax.sharding.Mesh(np.array(devices), (MESH_AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
