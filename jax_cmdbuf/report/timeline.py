"""A replay as a table: what each allocation was in each execution, and why it ended as it did.

Invariant: pure; everything comes from the replay's events, tables and snapshots, nothing from the recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from jax_cmdbuf.events import (
    Error,
    Event,
    ExecuteCommandBuffer,
    RecordCreate,
    ThunkFallback,
    TransitionActive,
    TransitionDisabled,
    UpdateBegin,
    UpdateDone,
)
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.policy import AllocationRole
from jax_cmdbuf.runtime.remapping import Program
from jax_cmdbuf.runtime.replay import Replay, ReplayedExecution

__all__ = ["CellState", "Column", "Row", "Timeline", "make_column", "make_rows", "make_timeline"]


class CellState(Enum):
    """What an allocation was in one execution.

    CONSTANT: never compared. PROFILED, PROFILED_MOVED: observed; at the address it had before, or not.
    REMAPPED: at its reservation address. REMAPPED_MOVED: the same, but other memory had to be mapped there
    first. SAME, MOVED: compared; at the address it had before, or not, so that commands were updated.
    NOT_RUN: the program did not run.
    """

    CONSTANT = "constant"
    PROFILED = "profiled"
    PROFILED_MOVED = "profiled, moved"
    REMAPPED = "remapped"
    REMAPPED_MOVED = "remapped, moved"
    SAME = "same address"
    MOVED = "moved"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Row:
    """One allocation that command buffers use.

    Attributes:
      allocation, size, path: which; size in bytes; where it comes from, or "".
      role: its role under the mode.
      state, reason: how it ended, and why.
      cells: one per execution.
    """

    allocation: int
    size: int
    path: str
    role: str
    state: str
    reason: str
    cells: tuple[CellState, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One execution.

    Attributes:
      fallbacks: command buffers that ran as plain thunks.
      recorded: commands recorded for the first time.
      updated, skipped: commands of updated command buffers that were recorded again, or not.
      submitted: command buffers submitted.
      transition: "active", "disabled" or "".
      error: the error's text, or "".
    """

    fallbacks: int
    recorded: int
    updated: int
    skipped: int
    submitted: int
    transition: str
    error: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The table: ``rows`` are allocations, ``columns`` executions."""

    title: str
    mode: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]


def make_timeline(replay: Replay) -> Timeline:
    """Folds a replay into a table of the allocations that its command buffers use."""
    executions = replay.executions
    return Timeline(
        replay.scenario.name,
        replay.loaded.program.classification.mode.name,
        make_rows(replay.loaded, executions),
        tuple(make_column(execution.events) for execution in executions),
    )


def make_rows(loaded: GpuExecutable, executions: Sequence[ReplayedExecution]) -> tuple[Row, ...]:
    """The rows of a program's executions, oldest first, on one device."""
    program = loaded.program
    return tuple(
        _row(program, verdict.allocation, executions)
        for verdict in program.classification.verdicts
        if verdict.allocation in loaded.command_buffer_allocations
    )


def _row(program: Program, index: int, executions: Sequence[ReplayedExecution]) -> Row:
    verdict = program.classification.verdicts[index]
    state, reason = verdict.role.value, verdict.reason.value
    last = next((each.snapshot for each in reversed(executions) if each.snapshot is not None), None)
    if last is not None:
        found = last.allocations[index]
        state, reason = found.state, found.reason
    return Row(
        index,
        program.allocations[index].size,
        program.paths.get(index, ""),
        verdict.role.value,
        state,
        reason,
        tuple(_cells(verdict.role, index, executions)),
    )


def _cells(role: AllocationRole, index: int, executions: Iterable[ReplayedExecution]) -> Iterable[CellState]:
    before = None
    for execution in executions:
        if execution.owning is None:
            yield CellState.NOT_RUN
            continue
        address = execution.owning[index]
        moved = before is not None and address != before
        before = address
        snapshot = execution.snapshot
        if role is AllocationRole.CONSTANT:
            yield CellState.CONSTANT
        elif snapshot is not None and snapshot.phase == "profiling":
            yield CellState.PROFILED_MOVED if moved else CellState.PROFILED
        elif snapshot is not None and index in snapshot.selected:
            placed = snapshot.allocations[index].role == AllocationRole.REMAPPED.value
            yield CellState.REMAPPED_MOVED if moved and not placed else CellState.REMAPPED
        else:
            yield CellState.MOVED if moved else CellState.SAME


def make_column(events: Iterable[Event]) -> Column:
    """What command buffers did in the execution that told these events."""
    fallbacks = recorded = updated = skipped = submitted = depth = 0
    transition = error = ""
    pending: list[tuple[int, int]] = []
    for event in events:
        match event:
            case ThunkFallback():
                fallbacks += 1
            case RecordCreate(commands):
                recorded += commands
            case UpdateBegin():
                pending, depth = [], 1
            case UpdateDone(commands, passed_over) if not depth:
                # Command buffers with collectives are updated before the program's first thunk runs.
                updated, skipped = updated + commands - passed_over, skipped + passed_over
            case UpdateDone(commands, passed_over):
                pending.append((commands - passed_over, passed_over))
            case ExecuteCommandBuffer():
                submitted += 1
                # Nested lists are told before their parent; the last one counts the command buffer's own
                # commands.
                if depth and pending:
                    updated, skipped = updated + pending[-1][0], skipped + pending[-1][1]
                depth = 0
            case TransitionActive():
                transition = "active"
            case TransitionDisabled():
                transition = "disabled"
            case Error(code, message):
                error = f"{code}: {message}"
            case _:
                continue
    return Column(fallbacks, recorded, updated, skipped, submitted, transition, error)
