"""What a program's data decide, worked out from how many command buffers a recorded execution ran.

A recording has no values, so how often a data-dependent loop ran, or which branch was taken, is an input of a
replay like an address is. Invariant: nothing is inferred where the program leaves nothing open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

from jax_cmdbuf.executable.thunks import Thunk, WhileInfo
from jax_cmdbuf.runtime.steps import BranchStep, CommandBufferStep, LoopStep, Step, ThunkStep

__all__ = ["CUSTOM_CALL", "FixedControlFlow", "infer_control_flow", "infer_failing_call"]

CUSTOM_CALL = "kCustomCall"

# Combinations of branches that are looked at before the first one is taken for granted.
_MOST_COMBINATIONS = 256


@dataclass(frozen=True, slots=True)
class FixedControlFlow:
    """The same decisions in every execution: ``ControlFlow`` for a device that computes no values.

    Attributes:
      loop_iterations: thunk id -> iterations of a loop without a known trip count.
      branches: thunk id -> branch of a conditional outside command buffers.
      default_iterations: for loops that are not listed. Branch 0 is the default of conditionals.
    """

    loop_iterations: Mapping[int, int] = field(default_factory=dict)
    branches: Mapping[int, int] = field(default_factory=dict)
    default_iterations: int = 1

    def iterations(self, loop: Thunk) -> int:
        """See ``ControlFlow``."""
        return self.loop_iterations.get(loop.id, self.default_iterations)

    def branch(self, conditional: Thunk) -> int:
        """See ``ControlFlow``."""
        return self.branches.get(conditional.id, 0)


def infer_control_flow(steps: Sequence[Step], runs: int) -> FixedControlFlow:
    """Decisions under which ``steps`` run exactly ``runs`` command buffers; the defaults if there are none.

    All loops without a known trip count get the same number of iterations, and the first fitting combination
    of branches is taken: a recording does not tell more.
    """
    conditionals = [step for step in _walk(steps) if isinstance(step, BranchStep)]
    is_open = conditionals or any(_is_open_loop(step) for step in _walk(steps))
    if not is_open or _runs(steps, FixedControlFlow()) == runs:
        return FixedControlFlow()
    choices = product(*(range(len(step.branches)) for step in conditionals))
    for chosen in islice(choices, _MOST_COMBINATIONS):
        branches = {step.thunk.id: branch for step, branch in zip(conditionals, chosen, strict=True)}
        for iterations in range(runs + 1):
            flow = FixedControlFlow(branches=branches, default_iterations=iterations)
            count = _runs(steps, flow)
            if count == runs:
                return flow
            if count > runs:
                break
    return FixedControlFlow()


def _trip_count(loop: LoopStep) -> int | None:
    return loop.thunk.info.trip_count if isinstance(loop.thunk.info, WhileInfo) else None


def _is_open_loop(step: Step) -> bool:
    return isinstance(step, LoopStep) and _trip_count(step) is None


def _walk(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        match step:
            case LoopStep():
                yield from _walk(step.condition)
                yield from _walk(step.body)
            case BranchStep():
                for branch in step.branches:
                    yield from _walk(branch)
            case ThunkStep() | CommandBufferStep():
                continue


def _runs(steps: Sequence[Step], flow: FixedControlFlow) -> int:
    """How many command buffers run."""
    return sum(isinstance(step, CommandBufferStep) for step in _execution(steps, flow))


def _execution(steps: Sequence[Step], flow: FixedControlFlow) -> Iterator[CommandBufferStep | ThunkStep]:
    """The steps in the order in which an execution runs them."""
    for step in steps:
        match step:
            case CommandBufferStep():
                if step.command_buffer.commands.commands:
                    yield step
            case LoopStep():
                count = _trip_count(step)
                is_open = count is None
                for _ in range(flow.iterations(step.thunk) if count is None else count):
                    if is_open:
                        yield from _execution(step.condition, flow)
                    yield from _execution(step.body, flow)
                if is_open:
                    yield from _execution(step.condition, flow)
            case BranchStep():
                yield from _execution(step.branches[flow.branch(step.thunk)], flow)
            case ThunkStep():
                yield step


def infer_failing_call(steps: Sequence[Step], flow: FixedControlFlow, runs: int) -> int:
    """Which custom call outside command buffers failed, from 1, if ``runs`` command buffers ran before it.

    It is the first one behind that many command buffers, or the last one there is.
    """
    calls = buffers = 0
    for step in _execution(steps, flow):
        if isinstance(step, CommandBufferStep):
            if calls and buffers >= runs:
                break
            buffers += 1
        elif step.thunk.kind == CUSTOM_CALL:
            calls += 1
            if buffers >= runs:
                break
    return max(calls, 1)
