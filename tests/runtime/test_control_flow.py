"""What can be told about loops and branches from the number of command buffers that ran."""

from __future__ import annotations

import pytest

from jax_cmdbuf.executable.thunks import ConditionalInfo, Thunk, ThunkKind, WhileInfo
from jax_cmdbuf.runtime.control_flow import FixedControlFlow, infer_control_flow, infer_failing_call
from jax_cmdbuf.runtime.steps import build_steps


def buffer(make, identifier):
    return make.command_buffer(make.kernel(identifier, [0], [1]))


def loop(identifier, body, condition=(), trip_count=None):
    return Thunk(ThunkKind("kWhile"), identifier, "", (), (condition, body), WhileInfo(trip_count))


def branches(identifier, *lists):
    return Thunk(ThunkKind("kConditional"), identifier, "", (), lists, ConditionalInfo())


@pytest.mark.parametrize("iterations", [0, 1, 2, 7])
def test_the_iterations_of_an_open_loop(make, iterations):
    steps = build_steps((buffer(make, 1), loop(2, (buffer(make, 3), buffer(make, 4)), (buffer(make, 5),))))
    flow = infer_control_flow(steps, 1 + 3 * iterations + 1)
    assert flow.iterations(Thunk(ThunkKind("kWhile"), 2, "")) == iterations


def test_nested_open_loops_get_the_same_number(make):
    steps = build_steps((loop(1, (buffer(make, 2), loop(3, (buffer(make, 4),)))),))
    assert infer_control_flow(steps, 4 + 16).default_iterations == 4


def test_the_branch_that_fits(make):
    steps = build_steps((branches(1, (), (buffer(make, 2),), (buffer(make, 3), buffer(make, 4))),))
    assert [infer_control_flow(steps, runs).branches.get(1, 0) for runs in range(3)] == [0, 1, 2]


def test_a_branch_and_a_loop_together(make):
    steps = build_steps((branches(1, (), (buffer(make, 2),) * 10), loop(3, (buffer(make, 4),))))
    assert infer_control_flow(steps, 7).default_iterations == 7


@pytest.mark.parametrize("runs", [0, 1, 5])
def test_nothing_open_or_nothing_fitting_gives_the_defaults(make, runs):
    closed = build_steps((buffer(make, 1), loop(2, (buffer(make, 3),), trip_count=3)))
    assert infer_control_flow(closed, runs) == FixedControlFlow()
    two_each = build_steps((loop(1, (buffer(make, 2), buffer(make, 3))),))
    assert infer_control_flow(two_each, 3) == FixedControlFlow()
    no_buffers = build_steps((loop(1, ()),))
    assert infer_control_flow(no_buffers, runs) == FixedControlFlow()


def test_the_custom_call_that_failed_is_the_first_behind_the_command_buffers_that_ran(make):
    def call(identifier):
        return make.kernel(identifier, [], [], kind="kCustomCall")

    steps = build_steps((call(1), buffer(make, 2), call(3), call(4), buffer(make, 5), call(6)))
    found = [infer_failing_call(steps, FixedControlFlow(), runs) for runs in range(4)]
    assert found == [1, 2, 4, 4]
    in_loop = build_steps((loop(1, (buffer(make, 2), call(3)), trip_count=3),))
    assert [infer_failing_call(in_loop, FixedControlFlow(), runs) for runs in (1, 2, 3)] == [1, 2, 3]
    assert infer_failing_call(build_steps(()), FixedControlFlow(), 0) == 1
