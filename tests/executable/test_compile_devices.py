from __future__ import annotations

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile_devices import MESH_AXIS, data_mesh, topology_devices
from jax_cmdbuf.executable.targets import load_target

pytestmark = pytest.mark.aot
H200 = load_target("h200").text


def test_devices_are_for_the_compiler_only() -> None:
    import jax

    devices = topology_devices(H200, 4)
    assert len(devices) == 4
    assert {device.platform for device in devices} == {"gpu"}
    assert {device.platform for device in jax.devices()} == {"cpu"}
    mesh = data_mesh(devices)
    assert dict(mesh.shape) == {MESH_AXIS: 4}


def test_a_mesh_needs_a_device() -> None:
    with pytest.raises(InputError, match="--devices must be at least 1, not 0"):
        topology_devices(H200, 0)


def test_a_text_xla_cannot_read_is_the_users() -> None:
    with pytest.raises(InputError, match="XLA cannot read the target's text"):
        topology_devices(H200 + "\nno_such_field: 1", 1)
