"""The converted program as steps that run on any device: command buffers, loops, branches, plain thunks.

Mirrors ``ExecuteOnStream`` of ``xla/backends/gpu/runtime/{sequential,while,conditional,async}_thunk.cc``.
Invariant: steps run in program order, and a thunk inside a command buffer runs only through that command
  buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from jax_cmdbuf.executable.thunks import Thunk, WhileInfo
from jax_cmdbuf.runtime.command_buffer_thunk import CommandBufferThunk, ExecuteParams
from jax_cmdbuf.runtime.commands import command_list

__all__ = [
    "BranchStep",
    "CommandBufferStep",
    "ControlFlow",
    "LoopStep",
    "Runner",
    "Step",
    "ThunkStep",
    "build_steps",
    "command_buffers",
]


class ControlFlow(Protocol):
    """What the program's data decide; only a device knows, so a simulation is told."""

    def iterations(self, loop: Thunk) -> int:
        """How often the body of a loop without a known trip count runs."""

    def branch(self, conditional: Thunk) -> int:
        """Which branch of a conditional outside command buffers runs."""


class Runner(Protocol):
    """Runs what is not in a command buffer, and answers for the program's data."""

    @property
    def control_flow(self) -> ControlFlow:
        """Decides loops and branches."""

    def run_thunk(self, thunk: Thunk, params: ExecuteParams) -> None:
        """Runs one plain thunk.

        Raises:
          StatusError: the thunk failed.
        """


@dataclass(frozen=True)
class ThunkStep:
    """A thunk that runs by itself."""

    thunk: Thunk

    def run(self, params: ExecuteParams, runner: Runner) -> None:
        """Runs the thunk."""
        runner.run_thunk(self.thunk, params)


@dataclass(frozen=True)
class CommandBufferStep:
    """A command buffer, or its thunks while the persistent set is unknown."""

    command_buffer: CommandBufferThunk
    fallback: tuple[Step, ...]

    def run(self, params: ExecuteParams, runner: Runner) -> None:
        """Executes the command buffer."""
        self.command_buffer.execute(params, lambda: run_steps(self.fallback, params, runner))


@dataclass(frozen=True)
class LoopStep:
    """A loop outside command buffers; a loop of known trip count does not run its condition."""

    thunk: Thunk
    condition: tuple[Step, ...]
    body: tuple[Step, ...]

    def run(self, params: ExecuteParams, runner: Runner) -> None:
        """Runs the body as often as the trip count or the data say."""
        if isinstance(self.thunk.info, WhileInfo) and self.thunk.info.trip_count is not None:
            for _ in range(self.thunk.info.trip_count):
                run_steps(self.body, params, runner)
            return
        for _ in range(runner.control_flow.iterations(self.thunk)):
            run_steps(self.condition, params, runner)
            run_steps(self.body, params, runner)
        run_steps(self.condition, params, runner)


@dataclass(frozen=True)
class BranchStep:
    """A conditional outside command buffers."""

    thunk: Thunk
    branches: tuple[tuple[Step, ...], ...]

    def run(self, params: ExecuteParams, runner: Runner) -> None:
        """Runs the branch that the data choose."""
        run_steps(self.branches[runner.control_flow.branch(self.thunk)], params, runner)


Step = ThunkStep | CommandBufferStep | LoopStep | BranchStep


def run_steps(steps: Sequence[Step], params: ExecuteParams, runner: Runner) -> None:
    """Runs steps in order."""
    for step in steps:
        step.run(params, runner)


def build_steps(thunks: Sequence[Thunk], unroll_loops: bool = False) -> tuple[Step, ...]:
    """The steps of a converted thunk list.

    Args:
      thunks: ``Conversion.sequence`` or a list nested in it.
      unroll_loops: ``xla_gpu_command_buffer_unroll_loops``.
    """
    return tuple(_steps(thunks, unroll_loops))


def _steps(thunks: Sequence[Thunk], unroll_loops: bool) -> Iterator[Step]:
    for thunk in thunks:
        match thunk.kind:
            case "kCommandBuffer":
                (commands,) = thunk.nested
                buffer = CommandBufferThunk(thunk.name, command_list(commands, unroll_loops))
                yield CommandBufferStep(buffer, build_steps(commands, unroll_loops))
            case "kWhile":
                condition, body = (build_steps(nested, unroll_loops) for nested in thunk.nested)
                yield LoopStep(thunk, condition, body)
            case "kConditional":
                yield BranchStep(thunk, tuple(build_steps(nested, unroll_loops) for nested in thunk.nested))
            case "kAsyncStart" | "kSequential":
                for nested in thunk.nested:
                    yield from _steps(nested, unroll_loops)
            case "kAsyncDone":
                continue
            case _:
                yield ThunkStep(thunk)


def command_buffers(steps: Sequence[Step]) -> Iterator[CommandBufferThunk]:
    """Every command buffer, in program order; a loop's condition comes before its body."""
    for step in steps:
        match step:
            case CommandBufferStep():
                yield step.command_buffer
            case LoopStep():
                yield from command_buffers(step.condition)
                yield from command_buffers(step.body)
            case BranchStep():
                for branch in step.branches:
                    yield from command_buffers(branch)
            case ThunkStep():
                continue
