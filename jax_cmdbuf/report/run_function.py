"""What one signature did on one device, folded from its simulated executions.

Invariant: verdicts, counts and cells come from the executions' events, tables and snapshots alone; how the
caller passed its arguments is told from outside and changes none of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from jax_cmdbuf.executable.conversion import Conversion
from jax_cmdbuf.report.run_advice import advise, find_hazards
from jax_cmdbuf.report.run_model import AllocationRun, ArgumentUse, ExecutionRun, FunctionRun
from jax_cmdbuf.report.timeline import CellState, Row, make_column, make_rows
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.policy import AllocationRole, RoleReason
from jax_cmdbuf.runtime.replay import ReplayedExecution
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot

__all__ = ["CELLS", "function_of_executions", "function_of_snapshot"]

CELLS = {
    CellState.CONSTANT: "c",
    CellState.PROFILED: "p",
    CellState.PROFILED_MOVED: "P",
    CellState.REMAPPED: "r",
    CellState.REMAPPED_MOVED: "R",
    CellState.SAME: "=",
    CellState.MOVED: "u",
    CellState.NOT_RUN: "-",
}
"""Letters of a timeline: capitals, and "u", are moves."""

_MOVES = frozenset("PRu")
_NOT_COMPARED = frozenset("c-")


def function_of_executions(
    base: FunctionRun,
    loaded: GpuExecutable,
    conversion: Conversion,
    executions: Sequence[ReplayedExecution],
    times: Sequence[tuple[float, float]] = (),
    uses: Mapping[int, ArgumentUse] | None = None,
) -> FunctionRun:
    """Completes ``base`` by what the executions tell.

    Args:
      base: who and where; ``calls`` counts all executions.
      loaded, conversion: the program.
      executions: the last ones, oldest first.
      times: (begin, duration) in microseconds of the last calls, oldest first; may be shorter.
      uses: allocation -> how the calls passed it.
    """
    commands = _commands_by_allocation(conversion)
    last = next((each.snapshot for each in reversed(executions) if each.snapshot is not None), None)
    runs = _runs(executions, times)
    constants = loaded.program.classification.constants
    made = dataclasses.replace(
        base,
        phase=last.phase if last is not None else "none",
        steps=last.steps if last is not None else 0,
        limit=last.limit if last is not None else 0,
        failures=sum(bool(each.error) for each in runs),
        commands=sum(len(each.commands) for each in conversion.command_buffers),
        persistent=last.persistent if last is not None else constants,
        selected=last.selected if last is not None else (),
        reserved=last.reserved_bytes if last is not None else 0,
        allocations=tuple(_allocations(loaded, executions, commands, uses or {})),
        first=base.calls - len(runs),
        executions=runs,
    )
    return dataclasses.replace(made, hazards=find_hazards(made), advice=advise(made, commands))


def function_of_snapshot(
    base: FunctionRun,
    snapshot: RemappingSnapshot,
    times: Sequence[tuple[float, float]],
    compared: int,
    moves: Mapping[int, int],
    uses: Mapping[str, ArgumentUse],
) -> FunctionRun:
    """Completes ``base`` by a profile that was kept beside a native run.

    Args:
      base: who and where; ``calls`` counts all executions.
      snapshot: the profile.
      times: (begin, duration) in microseconds of the last calls, oldest first.
      compared: executions after the profile was decided whose addresses were compared.
      moves: allocation -> in how many of them it moved.
      uses: path -> how the calls passed it.
    """
    made = dataclasses.replace(
        base,
        phase=snapshot.phase if snapshot.limit or snapshot.selected else "none",
        steps=snapshot.steps,
        limit=snapshot.limit,
        failures=snapshot.failures,
        persistent=snapshot.persistent,
        selected=snapshot.selected,
        reserved=snapshot.reserved_bytes,
        allocations=tuple(_native_allocations(snapshot, compared, moves, uses)),
        first=base.calls - len(times),
        executions=tuple(ExecutionRun(began, took) for began, took in times),
    )
    return dataclasses.replace(made, hazards=find_hazards(made), advice=advise(made, {}))


def _native_allocations(
    snapshot: RemappingSnapshot, compared: int, moves: Mapping[int, int], uses: Mapping[str, ArgumentUse]
) -> Iterable[AllocationRun]:
    for each in snapshot.allocations:
        if each.reason in _UNUSED:
            continue
        yield AllocationRun(
            each.allocation,
            each.size,
            each.path,
            each.role,
            each.path in uses,
            each.path.startswith("result["),
            each.state,
            each.reason,
            0,
            compared if each.allocation in moves else 0,
            moves.get(each.allocation, 0),
            0,
            "",
            uses.get(each.path),
        )


# What no command buffer reads or writes, by the reason for its role.
_UNUSED = frozenset(
    each.value
    for each in (
        RoleReason.THREAD_LOCAL,
        RoleReason.ZERO_SIZE,
        RoleReason.TUPLE_TABLE,
        RoleReason.NOT_IN_COMMAND_BUFFER,
    )
)


def _runs(
    executions: Sequence[ReplayedExecution], times: Sequence[tuple[float, float]]
) -> tuple[ExecutionRun, ...]:
    missing = len(executions) - len(times)
    timed = [(-1.0, -1.0)] * max(missing, 0) + list(times[max(-missing, 0) :])
    found = []
    for execution, (began, took) in zip(executions, timed, strict=True):
        column = make_column(execution.events)
        counts = column.fallbacks, column.recorded, column.updated, column.skipped, column.submitted
        found.append(ExecutionRun(began, took, *counts, column.transition, column.error))
    return tuple(found)


def _commands_by_allocation(conversion: Conversion) -> dict[int, frozenset[int]]:
    """Allocation -> numbers of the commands that use it; a loop or conditional is one command."""
    found: dict[int, set[int]] = {}
    commands = (command for buffer in conversion.command_buffers for command in buffer.commands)
    for number, command in enumerate(commands):
        for use in command.uses:
            found.setdefault(use.slice.allocation, set()).add(number)
    return {allocation: frozenset(numbers) for allocation, numbers in found.items()}


def _allocations(
    loaded: GpuExecutable,
    executions: Sequence[ReplayedExecution],
    commands: Mapping[int, frozenset[int]],
    uses: Mapping[int, ArgumentUse],
) -> Iterable[AllocationRun]:
    for row in make_rows(loaded, executions):
        allocation = loaded.program.allocations[row.allocation]
        cells = "".join(CELLS[cell] for cell in row.cells)
        seen = [each for each in cells if each not in _NOT_COMPARED]
        yield AllocationRun(
            row.allocation,
            row.size,
            row.path,
            row.role,
            allocation.is_entry_computation_parameter,
            row.allocation in loaded.outputs,
            row.state,
            row.reason,
            len(commands.get(row.allocation, ())),
            max(len(seen) - 1, 0),
            sum(each in _MOVES for each in seen),
            _places(row, executions),
            cells,
            uses.get(row.allocation),
        )


def _places(row: Row, executions: Sequence[ReplayedExecution]) -> int:
    if row.role == AllocationRole.CONSTANT.value:
        return 1
    return len({each.owning[row.allocation].opaque for each in executions if each.owning is not None})
