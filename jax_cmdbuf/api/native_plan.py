"""What the process's own XLA compiled for one signature, and which of a call's arrays are which allocations.

Invariant: nothing is compiled for it: the executable is the one that JAX already runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import DeviceDescription, Executable
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, load_target, target_named
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.policy import RoleReason
from jax_cmdbuf.runtime.registry import ProfileRegistry
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["NativePlan", "ReadExecutable", "Signature", "Tracked", "argument_leaves", "make_native_plan"]

# A compiled stage -> what XLA compiled.
ReadExecutable = Callable[[Any], Executable]


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of a function, as far as a plan needs it; refers to no argument.

    Attributes:
      lowered, compiled: JAX's stages of it.
      paths: of the flattened dynamic arguments.
      leaves: position of each of them among the leaves of ``(args, kwargs)``, static arguments included; None
        for one whose memory the executable does not use as it is: a host value, or an array that is moved.
    """

    lowered: Any
    compiled: Any
    paths: tuple[str, ...]
    leaves: tuple[int | None, ...]


class Tracked(NamedTuple):
    """An allocation that command buffers use and whose address a caller can see.

    Attributes:
      allocation: its index.
      is_result: whether it is seen as a result or as an argument.
      leaf: which leaf of the result, or of ``(args, kwargs)``.
    """

    allocation: int
    is_result: bool
    leaf: int


@dataclass(frozen=True, slots=True)
class NativePlan:
    """The program and what can be seen of it.

    Attributes:
      loaded: the executable under the update mode.
      tracked: what can be seen, arguments first.
    """

    loaded: GpuExecutable
    tracked: tuple[Tracked, ...]


def make_native_plan(
    signature: Signature, mode: CommandBufferUpdateMode, registry: ProfileRegistry, read: ReadExecutable
) -> NativePlan:
    """The plan of a signature that has been called.

    Args:
      signature: the signature.
      mode: the update mode.
      registry: where its profile will live.
      read: gives the executable of the compiled stage.

    Raises:
      InputError: the executable does not take the arrays that JAX passes.
      CmdbufError: XLA's executable cannot be read.
    """
    executable = read(signature.compiled)
    kept = _jax.kept_arguments(signature.lowered)
    taken = executable.parameter_allocations
    if len(taken) != len(kept):
        raise InputError(
            f"the executable of {executable.module} takes {len(taken)} arrays, but JAX passes {len(kept)}"
        )
    paths = {index: signature.paths[position] for index, position in zip(taken, kept, strict=True)}
    conversion = convert(executable, device=executable.device or _device_of(signature.compiled))
    loaded = GpuExecutable(executable, conversion, mode, registry, paths)
    return NativePlan(loaded, tuple(_tracked(loaded, [signature.leaves[position] for position in kept])))


def _tracked(loaded: GpuExecutable, leaf_of: Sequence[int | None]) -> list[Tracked]:
    used = {
        verdict.allocation
        for verdict in loaded.program.classification.verdicts
        if verdict.reason is RoleReason.INPUT_OR_OUTPUT
    }
    # A donated argument that becomes a result is where the result is: its buffer, or a copy if it was kept.
    results = {allocation: leaf for leaf, allocation in reversed(list(enumerate(loaded.outputs)))}
    arguments = [
        Tracked(allocation, False, leaf)
        for allocation, leaf in zip(loaded.parameters, leaf_of, strict=True)
        if leaf is not None and allocation in used and allocation not in results
    ]
    return arguments + [
        Tracked(allocation, True, leaf) for allocation, leaf in sorted(results.items()) if allocation in used
    ]


def _device_of(compiled: Any) -> DeviceDescription:
    """The GPU at hand, by its model; jaxlib before 0.12 does not store it in the executable."""
    kind = compiled.runtime_executable().local_devices()[0].device_kind
    return load_target(target_named(kind) or DEFAULT_TARGET).device


def argument_leaves(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: tuple[tuple[int, ...], tuple[str, ...]],
    shardings: Any,
) -> tuple[int | None, ...]:
    """``Signature.leaves`` of a call.

    Args:
      args, kwargs: the call's.
      static: numbers and names of the static arguments.
      shardings: what the compiled stage says it expects (``Compiled.input_shardings``).
    """
    numbers = {number % len(args) if number < 0 else number for number in static[0]} if args else set()
    found: list[int | None] = []
    expected = iter(jax.tree.leaves(shardings, is_leaf=lambda each: each is None))
    position = 0
    dynamic = [(number not in numbers, value) for number, value in enumerate(args)]
    dynamic += [(name not in static[1], kwargs[name]) for name in sorted(kwargs)]
    for is_dynamic, value in dynamic:
        for leaf in jax.tree.leaves(value):
            if is_dynamic:
                found.append(position if _is_used_in_place(leaf, next(expected, None)) else None)
            position += 1
    return tuple(found)


def _is_used_in_place(leaf: Any, sharding: Any) -> bool:
    if not isinstance(leaf, jax.Array) or sharding is None:
        return False
    same_devices = sharding.device_set == leaf.sharding.device_set
    return same_devices and bool(sharding.is_equivalent_to(leaf.sharding, leaf.ndim))
