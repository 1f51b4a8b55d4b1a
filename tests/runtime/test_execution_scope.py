"""One test for each scenario of XLA's own scope tests, in their order, then what else a scope promises.

In all of them no mapping is left in a reservation once pending work is done.
"""

from __future__ import annotations

import threading

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.runtime.buffer_allocations import PersistentSet
from jax_cmdbuf.runtime.execution_scope import ExecutionScope, RunOptions, open_scope
from jax_cmdbuf.runtime.remap_errors import NullBufferError
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS
from xla_flags.options import CommandBufferUpdateMode as Mode

PROFILED = Mode.SKIP_PROFILED


class Owner:
    """Stands for a loaded executable."""


@pytest.fixture
def owner():
    return Owner()


def fail(table, persistent):
    raise StatusError(StatusCode.INTERNAL, "the program failed")


def force(world, owner, program, selected):
    """Puts allocations into the remap set without profiling them."""
    remapping = world.registry.acquire(owner, program, world.allocator, world.executor)
    remapping.select(selected)
    remapping.lock.release()
    return remapping


def reached(world, address):
    return world.executor.memory.resolve(address).handle


def test_forced_parameter_with_a_replacement_and_a_failing_second_run(world, make, owner):
    program = make.program([make.parameter(0), make.temp(1)], Mode.SKIP_TEMP)
    force(world, owner, program, (0,))
    first, replacement = world.allocate(), world.allocate()
    seen = []

    def note(table, persistent):
        seen.append((table[0], reached(world, table[0])))

    def note_and_fail(table, persistent):
        note(table, persistent)
        fail(table, persistent)

    one = world.scope(owner, program, {0: first}, body=note)
    two = world.scope(owner, program, {0: first}, replace={0: replacement}, body=note_and_fail)
    assert seen[0][0] == seen[1][0] != first
    assert [handle for _, handle in seen] == [reached(world, first), reached(world, replacement)]
    assert one.persistent == two.persistent == PersistentSet([0])
    assert two.error is not None
    assert (one.owning[0], two.owning[0]) == (first, replacement)
    assert world.reservation_mappings() == 0


def test_second_of_two_selected_parameters_is_null(world, make, owner):
    program = make.program([make.parameter(0), make.parameter(1), make.temp(2)], Mode.SKIP_TEMP)
    force(world, owner, program, (0, 1))
    ran = []
    seen = world.scope(owner, program, {0: world.allocate(), 1: NULL_ADDRESS}, body=lambda *_: ran.append(1))
    assert isinstance(seen.error, NullBufferError)
    assert "allocation 1" in str(seen.error)
    assert not ran
    assert world.allocator.statistics(0).active_aliases == 0


def test_release_of_an_alias_fails_once_and_the_end_of_the_scope_retries(world, make, owner):
    program = make.program([make.parameter(0), make.temp(1)], Mode.SKIP_TEMP)
    force(world, owner, program, (0,))
    first = world.allocate()
    # Batches of one: the release that is deferred next needs the timeline write of this free.
    world.free(world.allocate(4 << 20))
    world.executor.driver.fail("cuStreamWriteValue64")
    seen = world.scope(owner, program, {0: first})
    assert seen.error is not None
    assert "cuStreamWriteValue64" in str(seen.error)
    assert world.allocator.statistics(0).active_aliases == 0
    assert world.scope(owner, program, {0: first}).error is None


def test_forced_output_is_freed_by_the_caller_each_time(world, make, owner):
    program = make.program([make.output(0, size=1000), make.temp(1, size=4 << 20)], Mode.SKIP_TEMP)
    force(world, owner, program, (0,))
    runs = []
    for _ in range(2):
        seen = world.scope(owner, program, {}, body=lambda table, _: runs.append(reached(world, table[0])))
        runs.append(seen)
    (handle_one, one, handle_two, two) = runs
    assert one.owning[0].size == 1000
    assert one.table[0] == two.table[0] != one.owning[0]
    assert handle_one == reached(world, one.owning[0])
    assert handle_two == reached(world, two.owning[0])


def profile(world, make, owner, allocations, runs, buffers=None, **how):
    program = make.program(allocations, PROFILED)
    given = buffers or (lambda run: {0: world_buffer(world)})
    return [world.scope(owner, program, given(run), **how) for run in range(runs)]


def world_buffer(world):
    if not hasattr(world, "buffer"):
        world.buffer = world.allocate()
    return world.buffer


def test_stable_parameter_five_runs(world, make, owner):
    seen = profile(world, make, owner, [make.parameter(0)], 5)
    assert [each.persistent for each in seen] == [PersistentSet.UNKNOWN] * 3 + [PersistentSet([0])] * 2
    assert [each.table[0] for each in seen[:3]] == [world.buffer] * 3
    assert seen[3].table[0] == seen[4].table[0] != world.buffer
    assert all(each.owning[0] == world.buffer for each in seen)
    assert world.reservation_mappings() == 0


def test_a_failing_run_first_does_not_count(world, make, owner):
    program = make.program([make.parameter(0)], PROFILED)
    buffer = {0: world.allocate()}
    assert world.scope(owner, program, buffer, body=fail).error is not None
    seen = [world.scope(owner, program, buffer) for _ in range(4)]
    assert [each.persistent.known for each in seen] == [False, False, False, True]
    assert [event.step for each in seen for event in each.events if event.kind == "profile_step"] == [1, 2, 3]


def test_temp_only(world, make, owner):
    seen = profile(world, make, owner, [make.temp(0, size=5000)], 5, buffers=lambda run: {})
    assert [each.persistent.known for each in seen] == [False] * 3 + [True] * 2
    assert seen[3].persistent == PersistentSet([0])
    assert seen[3].table[0] == seen[4].table[0]
    assert seen[3].table[0].size == world.executor.granularity
    assert all(each.owning[0] == each.table[0] for each in seen)


def test_temp_and_an_alternating_parameter(world, make, owner):
    buffers = [world.allocate(), world.allocate()]
    seen = profile(
        world, make, owner, [make.parameter(0), make.temp(1)], 5, buffers=lambda run: {0: buffers[run % 2]}
    )
    assert [each.persistent.known for each in seen] == [False] * 3 + [True] * 2
    assert seen[4].persistent == PersistentSet([1])
    assert seen[4].table[0] == buffers[0]


def test_stable_output_five_runs(world, make, owner):
    handles = []
    seen = profile(
        world,
        make,
        owner,
        [make.output(0, size=1000)],
        5,
        buffers=lambda run: {},
        body=lambda table, _: handles.append(reached(world, table[0])),
    )
    owning = {each.owning[0] for each in seen}
    assert len(owning) == 1
    assert [each.table[0] == each.owning[0] for each in seen] == [True] * 3 + [False] * 2
    assert seen[3].table[0] == seen[4].table[0]
    assert set(handles[3:]) == {reached(world, owning.pop())}


def test_only_an_alternating_parameter_disables(world, make, owner):
    buffers = [world.allocate(), world.allocate()]
    seen = profile(world, make, owner, [make.parameter(0)], 5, buffers=lambda run: {0: buffers[run % 2]})
    assert [each.persistent for each in seen[3:]] == [PersistentSet([])] * 2
    assert [each.table[0] for each in seen] == [buffers[run % 2] for run in range(5)]
    assert seen[3].kinds == ["transition_disabled"]
    assert seen[4].kinds == []


def test_stable_parameter_in_foreign_memory_disables(world, make, owner):
    foreign = world.executor.allocate_foreign(1000)
    seen = profile(world, make, owner, [make.parameter(0)], 4, buffers=lambda run: {0: foreign})
    assert seen[3].kinds == ["not_vmm_backed", "transition_disabled"]
    assert seen[3].events[0].address == foreign.opaque
    assert seen[3].persistent == PersistentSet([])
    world.executor.free_foreign(foreign)


def test_two_parameters_on_one_buffer_are_both_dropped(world, make, owner):
    buffer = world.allocate()
    seen = profile(
        world,
        make,
        owner,
        [make.parameter(0), make.parameter(1)],
        4,
        buffers=lambda run: {0: buffer, 1: buffer},
    )
    assert seen[3].kinds == ["shared_buffer", "shared_buffer", "transition_disabled"]


def test_copy_protection_in_every_profiling_run_is_what_is_profiled_and_mapped(world, make, owner):
    program = make.program([make.parameter(0)], PROFILED)
    given, replacement = world.allocate(), world.allocate()
    handles = []
    seen = [
        world.scope(
            owner,
            program,
            {0: given},
            replace={0: replacement},
            body=lambda table, _: handles.append(reached(world, table[0])),
        )
        for _ in range(5)
    ]
    assert [each.owning[0] for each in seen] == [replacement] * 5
    assert seen[4].persistent == PersistentSet([0])
    assert set(handles) == {reached(world, replacement)}


def test_copy_protection_only_after_the_transition_maps_the_replacement(world, make, owner):
    program = make.program([make.parameter(0)], PROFILED)
    given, replacement = world.allocate(), world.allocate()
    handles = []

    def note(table, persistent):
        handles.append(reached(world, table[0]))

    before = [world.scope(owner, program, {0: given}, body=note) for _ in range(4)]
    after = world.scope(owner, program, {0: given}, replace={0: replacement}, body=note)
    assert before[3].table[0] == after.table[0]
    assert handles[3:] == [reached(world, given), reached(world, replacement)]


# The constructor's policy is in test_policy.py, flag default and parsing in tests/flags, and end to end on
# one # device (two GEMMs, both allocators) in test_gpu_executable.py.


class PlainAllocator:
    """An allocator that is no VMM allocator."""

    def __init__(self, executor):
        self.executor = executor

    def allocate(self, ordinal, size):
        return self.executor.allocate_foreign(size)

    def deallocate(self, ordinal, address):
        self.executor.free_foreign(address)


@pytest.mark.parametrize("mode", [Mode.SKIP_TEMP, PROFILED])
def test_an_allocator_that_is_no_vmm_allocator_gets_the_base_scope(world, make, owner, mode):
    program = make.program([make.temp(0), make.constant(1)], mode)
    options = RunOptions(PlainAllocator(world.executor), world.stream, world.log)
    with open_scope(owner, program, world.registry, options) as scope:
        assert type(scope) is ExecutionScope
        owning = scope.generate_buffer_allocations({}, {})
        seen = []
        scope.execute(owning, lambda table, persistent: seen.append((table, persistent)))
        scope.deallocate(owning[0])
    assert seen == [(owning, PersistentSet([1]))]
    assert world.registry.snapshots() == ()


@pytest.mark.parametrize(
    ("mode", "allocations"),
    [(Mode.ALWAYS_UPDATE, "temp"), (Mode.SKIP_TEMP, "output"), (PROFILED, "constant")],
)
def test_nothing_to_do_gets_the_base_scope(world, make, owner, mode, allocations):
    program = make.program([getattr(make, allocations)(0)], mode)
    seen = world.scope(owner, program, {})
    assert seen.persistent.known
    assert world.registry.snapshots() == ()


def test_the_reservation_is_laid_out_in_index_order_and_made_once(world, make, owner):
    program = make.program([make.temp(0, size=3 << 20), make.temp(1, size=1)], Mode.SKIP_TEMP)
    first, second = world.scope(owner, program, {}), world.scope(owner, program, {})
    (reserve,) = [event for event in (*first.events, *second.events) if event.kind == "reserve"]
    assert (reserve.total_size, reserve.granularity) == (6 << 20, 2 << 20)
    assert [each.opaque - reserve.address for each in first.table.addresses] == [0, 4 << 20]
    assert [each.size for each in first.table.addresses] == [4 << 20, 2 << 20]
    assert first.table == second.table


def test_the_error_of_the_execution_wins_over_that_of_the_release(world, make, owner):
    program = make.program([make.parameter(0), make.temp(1)], Mode.SKIP_TEMP)
    force(world, owner, program, (0,))

    def break_release_and_fail(table, persistent):
        world.free(world.allocate(4 << 20))
        world.executor.driver.fail("cuStreamWriteValue64")
        fail(table, persistent)

    seen = world.scope(owner, program, {0: world.allocate()}, body=break_release_and_fail)
    assert seen.error.message == "the program failed"
    assert any("cuStreamWriteValue64" in note for note in seen.error.__notes__)


def test_mapping_that_fails_part_way_releases_what_was_mapped_and_runs_nothing(world, make, owner):
    program = make.program([make.parameter(0), make.parameter(1), make.temp(2)], Mode.SKIP_TEMP)
    force(world, owner, program, (0, 1))
    ran = []
    buffers = {0: world.allocate(), 1: world.allocate()}
    world.executor.driver.fail("cuMemMap", 2)
    seen = world.scope(owner, program, buffers, body=lambda *_: ran.append(1))
    assert seen.error is not None
    assert not ran
    assert world.allocator.statistics(0).active_aliases == 0
    assert world.scope(owner, program, buffers).error is None


def test_a_failed_allocation_frees_those_before_it(world, make, owner):
    program = make.program([make.output(0), make.output(1), make.temp(2)], Mode.ALWAYS_UPDATE)
    world.executor.driver.fail("cuMemCreate", 3)
    with pytest.raises(StatusError, match="cuMemCreate"):
        world.scope(owner, program, {})
    assert world.allocator.statistics(0).active == 0


def test_runs_on_one_device_wait_for_one_another(world, make, owner):
    program = make.program([make.temp(0)], Mode.SKIP_TEMP)
    inside, order = threading.Event(), []

    def hold(table, persistent):
        inside.set()
        other.start()
        # The other run cannot get in, however long this one takes.
        other.join(0.05)
        order.append("first")

    other = threading.Thread(
        target=lambda: world.scope(owner, program, {}, body=lambda *_: order.append("second"))
    )
    world.scope(owner, program, {}, body=hold)
    other.join()
    assert inside.is_set()
    assert order == ["first", "second"]


def test_other_executables_and_snapshots_do_not_wait(world, make, owner):
    program = make.program([make.temp(0)], Mode.SKIP_TEMP)
    another = Owner()

    def nested(table, persistent):
        world.scope(another, program, {})
        assert {each.phase for each in world.registry.snapshots()} == {"active"}

    assert world.scope(owner, program, {}, body=nested).error is None
