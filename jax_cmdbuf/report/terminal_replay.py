"""The timeline of a replay on a terminal: allocations by executions, one coloured letter each, reasons below.

Invariant: every colour has a letter, so that the table says the same without colours.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jax_cmdbuf.report.timeline import CellState, Column, Timeline

__all__ = ["show_timeline"]

_CELLS = {
    CellState.CONSTANT: ("c", "dim"),
    CellState.PROFILED: ("p", "yellow"),
    CellState.PROFILED_MOVED: ("P", "bold yellow"),
    CellState.REMAPPED: ("r", "green"),
    CellState.REMAPPED_MOVED: ("R", "bold magenta"),
    CellState.SAME: ("=", "blue"),
    CellState.MOVED: ("u", "red"),
    CellState.NOT_RUN: ("-", "dim"),
}
_MEANINGS = {
    CellState.CONSTANT: "constant",
    CellState.PROFILED: "profiled",
    CellState.PROFILED_MOVED: "profiled, its address changed",
    CellState.REMAPPED: "at its reservation address",
    CellState.REMAPPED_MOVED: "at its reservation address, other memory mapped there first",
    CellState.SAME: "compared, address as before",
    CellState.MOVED: "compared, address changed: its commands are updated",
    CellState.NOT_RUN: "the program did not run",
}
_STATES = {
    "remapped": "green",
    "rejected": "red",
    "demoted": "magenta",
    "profiling": "yellow",
    "constant": "dim",
}
_TRANSITIONS = {"active": "on", "disabled": "off"}
_NAME_WIDTH = 34
_CELL_WIDTH = 4


def show_timeline(timeline: Timeline, console: Console) -> None:
    """Prints the timeline, in parts if it is wider than the console, and the reasons."""
    console.print(
        Text.assemble((timeline.title, "bold"), f"  {timeline.mode}, {len(timeline.columns)} executions")
    )
    per_part = max((console.width - _NAME_WIDTH - 4) // _CELL_WIDTH, 4)
    for first in range(0, max(len(timeline.columns), 1), per_part):
        console.print(_part(timeline, first, per_part))
    console.print(_legend(timeline))
    console.print(_reasons(timeline))
    for number, column in enumerate(timeline.columns):
        if column.error:
            console.print(Text(f"execution {number} failed: {column.error}", "red"))


def _part(timeline: Timeline, first: int, count: int) -> Table:
    table = Table(box=None, padding=(0, 0), show_edge=False, header_style="dim")
    table.add_column("", width=_NAME_WIDTH, no_wrap=True, overflow="ellipsis")
    numbers = range(first, min(first + count, len(timeline.columns)))
    for number in numbers:
        table.add_column(str(number), width=_CELL_WIDTH, justify="right", no_wrap=True)
    for row in timeline.rows:
        cells = [Text(*_CELLS[row.cells[number]]) for number in numbers]
        table.add_row(f"{row.allocation:>4} {row.path or row.role}", *cells)
    table.add_section()
    for name, value in _FACTS:
        values = [value(timeline.columns[number]) for number in numbers]
        if any(text.plain for text in values):
            table.add_row(Text(f"     {name}", "dim"), *values)
    return table


def _number(count: int, style: str) -> Text:
    return Text(str(count) if count else "", style)


_FACTS: tuple[tuple[str, Callable[[Column], Text]], ...] = (
    ("run as plain thunks", lambda column: _number(column.fallbacks, "yellow")),
    ("commands recorded", lambda column: _number(column.recorded, "cyan")),
    ("commands updated", lambda column: _number(column.updated, "red")),
    ("commands skipped", lambda column: _number(column.skipped, "blue")),
    ("command buffers submitted", lambda column: _number(column.submitted, "")),
    (
        "profile decided",
        lambda column: Text(_TRANSITIONS.get(column.transition, ""), "green"),
    ),
    ("failed", lambda column: Text("x" if column.error else "", "bold red")),
)


def _legend(timeline: Timeline) -> Text:
    used = {cell for row in timeline.rows for cell in row.cells}
    text = Text()
    for state, (letter, style) in _CELLS.items():
        if state in used:
            text.append(letter, style)
            text.append(f" {_MEANINGS[state]}   ", "dim")
    return text


def _reasons(timeline: Timeline) -> Table:
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("allocation", justify="right")
    table.add_column("bytes", justify="right")
    for heading in ("from", "state", "because"):
        table.add_column(heading, overflow="fold")
    for row in timeline.rows:
        state = Text(row.state, _STATES.get(row.state, ""))
        table.add_row(str(row.allocation), f"{row.size:,}", row.path, state, row.reason)
    return table
