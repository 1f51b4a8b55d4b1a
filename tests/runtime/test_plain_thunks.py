"""Thunks outside command buffers: their addresses are always those of the table."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.command_buffer_thunk import ExecuteParams
from jax_cmdbuf.runtime.control_flow import FixedControlFlow
from jax_cmdbuf.runtime.plain_thunks import PlainThunks

FLOW = FixedControlFlow()


@pytest.fixture
def plain():
    made = PlainThunks()
    yield made
    made.close()


def params(world, *addresses):
    return ExecuteParams(BufferAllocations(addresses), PersistentSet.UNKNOWN, world.stream, world.log)


def launches(world):
    return world.executor.driver.calls["cuGraphLaunch"]


def test_each_run_is_submitted_with_the_addresses_of_its_table(make, new_world, plain):
    # Not closed in the end: a device that has faulted refuses even that.
    world = new_world()
    thunk = make.kernel(1, [0], [1])
    first, second = world.allocate(), world.allocate()
    runner = plain.runner(FLOW, None)
    runner.run_thunk(thunk, params(world, first, second))
    runner.run_thunk(thunk, params(world, first, second))
    assert launches(world) == 2
    gone = world.allocate()
    world.free(gone)
    world.allocator.synchronize_pending_operations(0)
    with pytest.raises(StatusError, match=f"{gone.opaque:#x}"):
        runner.run_thunk(thunk, params(world, first, gone))


def test_only_a_custom_call_is_the_users_code(world, make, plain):
    failure = StatusError(StatusCode.INTERNAL, "injected")
    runner = plain.runner(FLOW, failure)
    buffer = world.allocate()
    runner.run_thunk(make.kernel(1, [0], []), params(world, buffer))
    with pytest.raises(StatusError, match="injected"):
        runner.run_thunk(make.kernel(2, [0], [], kind="kCustomCall"), params(world, buffer))
    assert runner.control_flow is FLOW


@pytest.mark.parametrize("call", ["cuGraphInstantiate", "cuGraphLaunch"])
def test_after_a_failure_it_is_recorded_from_nothing(world, make, plain, call):
    thunk, runner = make.kernel(1, [0], []), plain.runner(FLOW, None)
    stale, buffer = world.allocate(), world.allocate()
    world.executor.driver.fail(call)
    with pytest.raises(StatusError, match=call):
        runner.run_thunk(thunk, params(world, stale))
    world.free(stale)
    world.allocator.synchronize_pending_operations(0)
    runner.run_thunk(thunk, params(world, buffer))
    assert world.executor.fault is None
