"""Record, update, submit as is, or fall back: what a command buffer does in each execution."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.events import ExecuteCommandBuffer, RecordCreate, ThunkFallback, UpdateBegin, UpdateDone
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.command_buffer_thunk import (
    FALLBACK_REASON,
    WARMUP_REASON,
    CommandBufferThunk,
    ExecuteParams,
)
from jax_cmdbuf.runtime.commands import command_list
from jax_cmdbuf.runtime.recording import Recording

NONE = PersistentSet([])
UNKNOWN = PersistentSet.UNKNOWN


class Bench:
    """One command buffer of two commands: the first uses allocations 0 and 1, the second 1 and 2."""

    def __init__(self, world, make, kind="kCustomKernel"):
        self.world = world
        thunks = make.kernel(1, [0], [1]), make.kernel(2, [1], [2], kind=kind)
        self.thunk = CommandBufferThunk("command_buffer_1", command_list(thunks))
        self.table = BufferAllocations([world.allocate() for _ in range(3)])
        self.other = BufferAllocations([world.allocate() for _ in range(3)])
        self.thunk_runs = 0
        world.log.drain()

    def changed(self, *indices):
        return self.table.with_addresses({index: self.other[index] for index in indices})

    def run(self, table=None, persistent=NONE):
        params = ExecuteParams(table or self.table, persistent, self.world.stream, self.world.log)
        self.thunk.initialize(params)
        self.thunk.execute(params, self.count)
        return list(self.world.log.drain())

    def count(self):
        self.thunk_runs += 1


@pytest.fixture
def bench(world, make):
    made = Bench(world, make)
    yield made
    made.thunk.evict()


def test_the_first_run_records_before_it_executes_and_the_second_submits_as_is(bench):
    assert bench.run() == [RecordCreate(2), ExecuteCommandBuffer(1)]
    assert bench.run() == [ExecuteCommandBuffer(2)]
    assert bench.run() == [ExecuteCommandBuffer(3)]


def test_a_changed_address_updates_the_commands_that_use_it_and_is_remembered(bench):
    bench.run()
    bench.run()
    assert bench.run(bench.changed(0)) == [
        UpdateBegin(2, 2, 1, False),
        UpdateDone(2, 1),
        ExecuteCommandBuffer(1),
    ]
    assert bench.run(bench.changed(0)) == [ExecuteCommandBuffer(2)]
    assert bench.run(bench.changed(0, 1)) == [
        UpdateBegin(2, 2, 1, False),
        UpdateDone(2, 0),
        ExecuteCommandBuffer(1),
    ]


def test_persistent_allocations_are_not_looked_at(bench):
    same = PersistentSet([0])
    bench.run(persistent=same)
    assert bench.run(bench.changed(0), persistent=same) == [ExecuteCommandBuffer(2)]


def test_while_the_set_is_unknown_the_thunks_run_and_nothing_is_recorded(bench):
    for _ in range(3):
        assert bench.run(persistent=UNKNOWN) == [ThunkFallback(FALLBACK_REASON)]
    assert bench.thunk_runs == 3
    assert bench.run() == [RecordCreate(2), ExecuteCommandBuffer(1)]


def test_an_allocation_that_stops_being_persistent_is_compared_with_what_was_recorded(bench):
    bench.run(bench.changed(0), persistent=PersistentSet([0, 2]))
    fewer = PersistentSet([2])
    assert bench.run(persistent=fewer)[0] == UpdateBegin(1, 2, 1, False)
    assert bench.run(persistent=fewer) == [ExecuteCommandBuffer(2)]


def test_under_another_persistent_set_persistent_addresses_are_compared_once(bench):
    bench.run(persistent=PersistentSet([0]))
    again = PersistentSet([0])
    assert bench.run(bench.changed(0), persistent=again)[0] == UpdateBegin(1, 2, 1, False)
    assert bench.run(bench.changed(0), persistent=again) == [ExecuteCommandBuffer(2)]


def test_one_that_becomes_persistent_does_not(bench):
    bench.run()
    assert bench.run(persistent=PersistentSet([0])) == [ExecuteCommandBuffer(2)]


def test_an_evicted_command_buffer_is_recorded_again(bench):
    bench.run()
    bench.thunk.evict(bench.world.executor)
    assert bench.run(bench.changed(0)) == [RecordCreate(2), ExecuteCommandBuffer(1)]


def test_evicted_between_initialization_and_execution_it_is_the_first_record(bench):
    params = ExecuteParams(bench.table, NONE, bench.world.stream, bench.world.log)
    bench.thunk.initialize(params)
    bench.thunk.evict()
    bench.world.log.drain()
    bench.thunk.execute(params, bench.count)
    assert list(bench.world.log.drain()) == [
        UpdateBegin(1 - 1, 2, 3, True),
        RecordCreate(2),
        ExecuteCommandBuffer(1),
    ]


@pytest.mark.parametrize("call", ["create", "update"])
def test_after_a_failed_recording_everything_is_recorded_again(bench, call, monkeypatch):
    bench.run()
    if call == "create":
        bench.thunk.evict()

    def refuse(*arguments):
        raise StatusError(StatusCode.INTERNAL, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(Recording, call, refuse)
        with pytest.raises(StatusError, match="refused"):
            bench.run(bench.changed(0))
    bench.world.log.drain()
    assert bench.run(bench.changed(0)) == [RecordCreate(2), ExecuteCommandBuffer(1)]


def test_collectives_warm_up_once_and_are_recorded_again_before_every_dynamic_execution(world, make):
    bench = Bench(world, make, kind="kAllReduce")
    assert bench.run() == [ThunkFallback(WARMUP_REASON)]
    assert bench.run() == [RecordCreate(2), ExecuteCommandBuffer(1)]
    assert bench.run() == [UpdateDone(2, 1), ExecuteCommandBuffer(1)]
    everything = PersistentSet([0, 1, 2])
    assert bench.run(persistent=everything) == [ExecuteCommandBuffer(2)]
    bench.thunk.evict()


def test_a_command_buffer_without_commands_does_nothing(world):
    thunk = CommandBufferThunk("command_buffer_0", command_list(()))
    params = ExecuteParams(BufferAllocations([]), NONE, world.stream, world.log)
    thunk.initialize(params)
    thunk.execute(params, lambda: None)
    assert world.log.drain() == ()


def test_devices_have_a_recording_each(bench, new_world):
    other = new_world()
    bench.run()
    table = BufferAllocations([other.allocate() for _ in range(3)])
    other.log.drain()
    params = ExecuteParams(table, NONE, other.stream, other.log)
    bench.thunk.initialize(params)
    bench.thunk.execute(params, bench.count)
    assert list(other.log.drain()) == [RecordCreate(2), ExecuteCommandBuffer(1)]
    assert bench.run() == [ExecuteCommandBuffer(2)]
    bench.thunk.evict(other.executor)
    assert bench.run() == [ExecuteCommandBuffer(3)]
    other.close()
