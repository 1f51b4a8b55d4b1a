"""The state of one program on one device: layout, selection, demotion, release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.runtime.buffer_allocations import PersistentSet
from jax_cmdbuf.runtime.policy import classify
from jax_cmdbuf.runtime.profiling import ProfilePhase
from jax_cmdbuf.runtime.remapping import Demotion, Program, Remapping, lay_out
from xla_flags.options import CommandBufferUpdateMode as Mode

GRANULARITY = 2 << 20


@given(st.lists(st.integers(1, 20 << 20), min_size=1, max_size=8), st.randoms())
def test_slots_follow_one_another_in_index_order_and_never_overlap(sizes, random):
    allocations = tuple(BufferAllocation(i, size) for i, size in enumerate(sizes))
    program = Program("jit_f", allocations, classify(allocations, range(len(sizes)), Mode.SKIP_TEMP))
    selected = [index for index in range(len(sizes)) if random.random() < 0.7]
    random.shuffle(selected)
    layout = lay_out(program, tuple(selected), GRANULARITY)
    assert list(layout.slots) == sorted(selected)
    end = 0
    for index, slot in layout.slots.items():
        assert slot.offset == end
        assert slot.size % GRANULARITY == 0
        assert 0 <= slot.size - sizes[index] < GRANULARITY
        end += slot.size
    assert layout.total_size == end


@pytest.fixture
def remapping(world, make):
    def create(allocations, mode):
        program = make.program(allocations, mode)
        return Remapping(program, world.allocator, world.executor)

    return create


def test_without_profiling_the_temps_are_selected_from_the_start(remapping, make):
    made = remapping([make.parameter(0), make.temp(1), make.constant(2)], Mode.SKIP_TEMP)
    assert made.selected == (1,)
    assert made.placed == {1}
    assert made.aliased == ()
    assert made.persistent == PersistentSet([1, 2])
    made.begin()
    assert made.profile.phase is ProfilePhase.INACTIVE
    assert not made.is_disabled


def test_with_profiling_nothing_is_selected_until_it_is_decided(remapping, make):
    made = remapping([make.parameter(0), make.temp(1), make.constant(2)], Mode.SKIP_PROFILED)
    made.begin()
    assert made.persistent is PersistentSet.UNKNOWN
    (event,) = made.decide()
    assert (event.kind, event.automatic, event.selected, event.candidates) == ("transition_active", 1, 0, 1)
    assert made.persistent == PersistentSet([1, 2])
    with pytest.raises(StatusError, match="cannot move"):
        made.decide()


def test_a_program_with_nothing_to_select_is_disabled(remapping, make):
    made = remapping([make.parameter(0)], Mode.SKIP_PROFILED)
    made.begin()
    (event,) = made.decide()
    assert event.to_json() == {"kind": "transition_disabled", "module": "jit_test"}
    assert made.is_disabled
    assert made.persistent == PersistentSet([])


def test_a_demotion_shrinks_the_set_and_keeps_its_reason(remapping, make):
    made = remapping([make.temp(0), make.temp(1)], Mode.SKIP_TEMP)
    made.demote(Demotion(0, "it moved"))
    assert made.selected == (1,)
    assert made.persistent == PersistentSet([1])
    assert made.demotions == (Demotion(0, "it moved"),)


def test_owned_are_the_allocations_that_an_execution_allocates(make):
    allocations = [
        make.parameter(0),
        make.output(1),
        make.temp(2),
        make.constant(3),
        make.temp(4, size=0),
        BufferAllocation(5, 4, is_thread_local=True),
        BufferAllocation(6, 16, is_tuple=True, maybe_live_out=True),
    ]
    assert make.program(allocations, Mode.ALWAYS_UPDATE).owned == (1, 2, 6)


def test_closing_twice_does_nothing_more_and_a_refusal_can_be_repeated(world, make):
    class Owner:
        pass

    owner, program = Owner(), make.program([make.temp(0)], Mode.SKIP_TEMP)
    world.scope(owner, program, {})
    made = world.registry.acquire(owner, program, world.allocator, world.executor)
    made.lock.release()
    world.executor.driver.fail("cuMemAddressFree")
    with pytest.raises(StatusError, match="cuMemAddressFree"):
        made.close()
    made.close()
    made.close()
    assert made.is_closed
    assert world.executor.memory.reservation_count == 0
