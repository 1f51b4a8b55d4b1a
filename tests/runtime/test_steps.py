"""Programs as steps: order, loops, branches, what runs in a fallback."""

from __future__ import annotations

from jax_cmdbuf.executable.thunks import AsyncInfo, ConditionalInfo, Thunk, ThunkKind, WhileInfo
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.command_buffer_thunk import ExecuteParams
from jax_cmdbuf.runtime.control_flow import FixedControlFlow
from jax_cmdbuf.runtime.steps import build_steps, command_buffers, run_steps

DEFAULT = FixedControlFlow()


class Notes:
    """Writes down which thunks run."""

    def __init__(self, control_flow=DEFAULT):
        self.control_flow = control_flow
        self.ids = []

    def run_thunk(self, thunk, params):
        self.ids.append(thunk.id)


def loop(identifier, condition, body, trip_count=None):
    return Thunk(ThunkKind("kWhile"), identifier, "loop", (), (condition, body), WhileInfo(trip_count))


def run(world, thunks, flow=DEFAULT):
    notes = Notes(flow)
    params = ExecuteParams(BufferAllocations([]), PersistentSet.UNKNOWN, world.stream, world.log)
    run_steps(build_steps(thunks), params, notes)
    return notes.ids


def test_a_loop_of_known_trip_count_does_not_run_its_condition(world, make):
    thunks = (make.kernel(1, [], []), loop(2, (make.kernel(3, [], []),), (make.kernel(4, [], []),), 3))
    assert run(world, thunks) == [1, 4, 4, 4]


def test_any_other_loop_runs_its_condition_once_more_than_its_body(world, make):
    thunks = (loop(2, (make.kernel(3, [], []),), (make.kernel(4, [], []),)),)
    assert run(world, thunks, FixedControlFlow({2: 2})) == [3, 4, 3, 4, 3]
    assert run(world, thunks, FixedControlFlow(default_iterations=0)) == [3]


def test_a_conditional_runs_the_chosen_branch(world, make):
    branches = (make.kernel(2, [], []),), (make.kernel(3, [], []), make.kernel(4, [], []))
    thunks = (Thunk(ThunkKind("kConditional"), 1, "cond", (), branches, ConditionalInfo()),)
    assert run(world, thunks) == [2]
    assert run(world, thunks, FixedControlFlow(branches={1: 1})) == [3, 4]


def test_async_and_sequential_thunks_run_in_place(world, make):
    thunks = (
        Thunk(ThunkKind("kAsyncStart"), 1, "", (), ((make.kernel(2, [], []),),), AsyncInfo(1)),
        Thunk(ThunkKind("kSequential"), 3, "", (), ((make.kernel(4, [], []),),)),
        Thunk(ThunkKind("kAsyncDone"), 5, ""),
    )
    assert run(world, thunks) == [2, 4]


def test_a_command_buffer_falls_back_to_its_thunks_in_loops_too(world, make):
    inner = make.command_buffer(make.kernel(4, [], []), make.kernel(5, [], []))
    thunks = (make.command_buffer(make.kernel(1, [], [])), loop(2, (), (inner,), 2))
    assert run(world, thunks) == [1, 4, 5, 4, 5]
    assert [event.kind for event in world.log.drain()] == ["thunk_fallback"] * 3


def test_command_buffers_come_in_program_order(make):
    def buffer(identifier):
        return make.command_buffer(make.kernel(identifier, [], []))

    branches = (buffer(5),), (buffer(6),)
    thunks = (
        buffer(1),
        loop(2, (buffer(3),), (buffer(4),)),
        Thunk(ThunkKind("kConditional"), 7, "", (), branches, ConditionalInfo()),
        make.kernel(8, [], []),
    )
    names = [each.name for each in command_buffers(build_steps(thunks))]
    assert names == [f"command_buffer_{identifier}" for identifier in (1, 3, 4, 5, 6)]
