"""Guarded mode gives up what XLA would fail on or thrash with; fidelity never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.runtime.buffer_allocations import PersistentSet
from jax_cmdbuf.runtime.guard import FIDELITY, Guarded
from xla_flags.options import CommandBufferUpdateMode as Mode


class Owner:
    """Stands for a loaded executable."""


@pytest.fixture
def owner():
    return Owner()


def test_fidelity_gives_up_nothing():
    error = StatusError(StatusCode.ALREADY_EXISTS, "taken")
    assert FIDELITY.failed(error) is None
    moves = {}
    assert all(FIDELITY.moved(moves, 0, execution) is None for execution in range(100))


def test_guarded_gives_up_what_fails_with_the_reason():
    assert "ALREADY_EXISTS: taken" in Guarded().failed(StatusError(StatusCode.ALREADY_EXISTS, "taken"))


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 3), st.integers(2, 8))
def test_guarded_gives_up_at_the_first_window_with_too_many_moves(moved, most, window):
    guard, moves = Guarded(most, window), {}
    for execution, has_moved in enumerate(moved):
        if not has_moved:
            continue
        recent = sum(moved[max(execution - window + 1, 0) : execution + 1])
        reason = guard.moved(moves, 7, execution)
        assert (reason is not None) == (recent > most)
        if reason is not None:
            assert "times" in reason
            break


def test_guarded_a_parameter_that_cannot_be_mapped_is_demoted_and_the_run_goes_on(world, make, owner):
    program = make.program([make.parameter(0), make.parameter(1)], Mode.SKIP_PROFILED)
    buffers = [world.allocate(), world.allocate()]
    for _ in range(4):
        world.scope(owner, program, {0: buffers[0], 1: buffers[1]}, guard=Guarded())
    seen = world.scope(owner, program, {0: buffers[0], 1: buffers[0]}, guard=Guarded())
    assert seen.error is None
    assert seen.kinds == ["execute_remapped", "demote"]
    assert seen.persistent == PersistentSet([0])
    assert seen.table[1] == buffers[0]
    plain = world.scope(owner, program, {0: buffers[0], 1: buffers[0]})
    assert plain.error is None


def test_guarded_a_reservation_that_cannot_be_made_leaves_plain_execution(world, make, owner):
    program = make.program([make.temp(0), make.constant(1)], Mode.SKIP_TEMP)
    world.executor.driver.fail("cuMemAddressReserve")
    seen = world.scope(owner, program, {}, guard=Guarded())
    assert seen.error is None
    assert seen.persistent == PersistentSet([1])
    world.executor.driver.fail("cuMemAddressReserve")
    with pytest.raises(StatusError, match="cuMemAddressReserve"):
        world.scope(Owner(), program, {})


def test_guarded_a_temp_that_cannot_be_placed_is_allocated_elsewhere(world, make, owner):
    program = make.program([make.temp(0)], Mode.SKIP_TEMP)
    world.executor.driver.fail("cuMemCreate")
    seen = world.scope(owner, program, {}, guard=Guarded())
    assert seen.error is None
    assert seen.kinds == ["reserve", "demote"]
    assert seen.persistent == PersistentSet([])
