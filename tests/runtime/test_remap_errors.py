"""The typed errors: same meaning and code as XLA's, and the next execution is not harmed."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.runtime.execution_scope import RunOptions, open_scope
from jax_cmdbuf.runtime.remap_errors import (
    AllocatorChangedError,
    GranularityChangedError,
    NullBufferError,
    StreamMismatchError,
)
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from xla_flags.options import CommandBufferUpdateMode as Mode


class Owner:
    """Stands for a loaded executable."""


@pytest.fixture
def owner():
    return Owner()


@pytest.mark.parametrize(
    "error",
    [
        StreamMismatchError("jit_f"),
        AllocatorChangedError("jit_f"),
        GranularityChangedError("jit_f", 1, 2),
        NullBufferError("jit_f", 3),
    ],
)
def test_all_are_internal_and_name_the_module(error):
    assert isinstance(error, StatusError)
    assert error.code is StatusCode.INTERNAL
    assert error.message.startswith("jit_f: ")


def test_another_stream_than_the_allocators(world, make, owner):
    program = make.program([make.temp(0)], Mode.SKIP_TEMP)
    options = RunOptions(world.allocator, world.executor.create_stream(), world.log)
    with pytest.raises(StreamMismatchError, match="INTERNAL"):
        open_scope(owner, program, world.registry, options)


def test_another_allocator_than_before(world, make, owner):
    program = make.program([make.temp(0)], Mode.SKIP_TEMP)
    world.scope(owner, program, {})
    with DeviceAddressVmmAllocator([DeviceConfig(world.stream)]) as other:
        options = RunOptions(other, world.stream, world.log)
        with pytest.raises(AllocatorChangedError, match="changed VMM allocator"):
            open_scope(owner, program, world.registry, options)
    assert world.scope(owner, program, {}).error is None


def test_another_granularity_than_before(world, make, owner, monkeypatch):
    program = make.program([make.temp(0)], Mode.SKIP_TEMP)
    world.scope(owner, program, {})
    with monkeypatch.context() as patch:
        patch.setattr(world.allocator, "granularity", lambda ordinal: 4 << 20)
        with pytest.raises(GranularityChangedError, match="from 2097152 to 4194304"):
            world.scope(owner, program, {})
    assert world.scope(owner, program, {}).error is None
