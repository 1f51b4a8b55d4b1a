"""A run's report on a terminal: for each function and device what moved, why, and what to change.

Invariant: every colour has a word or letter beside it; devices that did the same are told once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jax_cmdbuf.report.run_model import (
    Advice,
    AllocationRun,
    ExecutionRun,
    FunctionRun,
    ProcessInfo,
    RunReport,
    similar,
)
from jax_cmdbuf.report.units import bytes_text, share_text

__all__ = ["RunDetail", "print_run"]

_STATES = {
    "remapped": "green",
    "rejected": "red",
    "demoted": "magenta",
    "profiling": "yellow",
    "constant": "dim",
}
_PHASES = {"active": "green", "disabled": "red", "profiling": "yellow"}
_CELLS = {"p": "yellow", "P": "bold yellow", "r": "green", "R": "bold magenta", "=": "blue", "u": "red"}
_LEGEND = (
    "p profiled   r at its reservation address   = compared, as before   capital or u: its address changed   "
    "c constant   - not run"
)


@dataclass(frozen=True, slots=True)
class RunDetail:
    """How much is shown: allocations of a function, and executions of an allocation."""

    allocations: int = 12
    executions: int = 24

    @classmethod
    def full(cls) -> RunDetail:
        """Everything."""
        return cls(1 << 30, 1 << 30)


def print_run(report: RunReport, console: Console, detail: RunDetail = RunDetail()) -> None:
    """Prints the report."""
    for process in report.processes:
        _print_process(process, console)
    if report.missing:
        numbers = ", ".join(map(str, report.missing))
        console.print(Text(f"reports of process {numbers} are missing", "yellow"))
    notes = dict.fromkeys(note for process in report.processes for note in process.notes)
    for note in notes:
        console.print(Text(f"! {note}", "yellow"))
    groups = similar(report.functions)
    if not groups:
        console.print(
            "no jitted function was observed: decorate one with jax_cmdbuf.command_buffer, or give --all"
        )
        return
    shown = [group for group in groups if group[0].commands != 0]
    for group in shown:
        console.print()
        _print_group(group, len(report.processes) > 1, console, detail)
    without = [f"{group[0].label} ({_times(group[0].calls)})" for group in groups if group[0].commands == 0]
    if without:
        console.print()
        console.print(
            Text(f"too small for a command buffer, so nothing is updated: {', '.join(without)}", "dim")
        )
    if any(row.cells for group in shown for row in group[0].allocations):
        console.print(Text(_LEGEND, "dim"))


def _print_process(process: ProcessInfo, console: Console) -> None:
    style = "green" if process.outcome == "finished" else "red"
    text = Text.assemble((" ".join(process.command), "bold"), "  ", (process.outcome, style))
    if process.detail:
        text.append(f" ({process.detail})", style)
    text.append(f" after {process.took_us / 1e6:,.1f} s")
    if process.count > 1:
        text.append(f", process {process.index} of {process.count} on {process.host}")
    if process.platform:
        kinds = dict.fromkeys(each.kind for each in process.devices)
        text.append(f", {len(process.devices)} {process.platform} ({', '.join(kinds)})", "dim")
    console.print(text)


def _print_group(
    group: Sequence[FunctionRun], has_processes: bool, console: Console, detail: RunDetail
) -> None:
    function = group[0]
    console.print(_headline(group, has_processes))
    for line in _facts(function):
        console.print(Text.assemble("  ", line))
    if function.allocations:
        console.print(Padding(_allocations(function, detail), (0, 0, 0, 2), expand=False))
    for hazard in function.hazards:
        console.print(_bullet("!", f"{hazard.kind}: {hazard.text}", "red"))
    for advice in function.advice:
        console.print(_bullet("→", _advice_text(advice, function), "cyan"))


def _bullet(mark: str, text: str | Text, style: str) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row(Text(f"  {mark}", style), text)
    return table


def _advice_text(advice: Advice, function: FunctionRun) -> Text:
    text = Text.assemble((f"{advice.action} ", "bold"), (advice.subject, "bold cyan"), f": {advice.text}")
    if function.commands and advice.commands:
        text.append(f" [commands: {share_text(advice.commands, function.commands)}]", "dim")
    return text


def _headline(group: Sequence[FunctionRun], has_processes: bool) -> Text:
    function = group[0]
    text = Text.assemble(
        (function.label, "bold"), f"  {_times(function.calls)} on {_where(group, has_processes)}"
    )
    target = f"simulated {function.target}" if function.runtime == "simulated" else function.target
    text.append(f" ({target})" if target else "")
    text.append(f", {function.effective}")
    if function.phase != "none":
        text.append(": ")
        text.append(function.phase, _PHASES.get(function.phase, ""))
    return text


def _where(group: Sequence[FunctionRun], has_processes: bool) -> str:
    by_process: dict[int, list[int]] = {}
    for each in group:
        by_process.setdefault(each.process, []).append(each.device)
    parts = []
    for process, devices in by_process.items():
        name = f"device {devices[0]}" if len(devices) == 1 else f"devices {_numbers(devices)}"
        parts.append(f"{name} of process {process}" if has_processes else name)
    return " and ".join(parts)


def _numbers(numbers: Sequence[int]) -> str:
    if list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 2:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def _facts(function: FunctionRun) -> Iterable[Text]:
    total = len(function.allocations)
    if function.persistent is None:
        yield Text(
            f"persistent allocations: unknown yet, profiled {function.steps} of {function.limit} executions"
        )
    elif total:
        known = {each.index for each in function.allocations}
        text = f"persistent allocations: {share_text(len(known & set(function.persistent)), total)}"
        if function.reserved:
            text += f", {bytes_text(function.reserved)} reserved for {len(function.selected)} of them"
        yield Text(text)
    updated = function.updated_per_step
    if updated is not None and function.commands:
        replays = len(function.replays)
        per_step = f"{updated:,.1f}".removesuffix(".0")
        # Loops may run, and update, their commands several times.
        share = f" ({100 * updated / function.commands:.0f} %)" if updated <= function.commands else ""
        yield Text(
            f"commands updated per step: {per_step} of {function.commands}{share}, in {_times(replays)} "
            "after the "
            "first recording"
        )
    duration = _median([each for each in function.executions if each.took_us >= 0])
    if duration is not None:
        yield Text(f"call on the host: {duration:,.0f} µs (median)", "dim")


def _median(executions: Sequence[ExecutionRun]) -> float | None:
    times = sorted(each.took_us for each in executions)
    return times[len(times) // 2] if times else None


def _importance(row: AllocationRun) -> tuple[bool, int, int]:
    return (row.state == "remapped" and not row.moves) or row.state == "constant", -row.commands, row.index


def _allocations(function: FunctionRun, detail: RunDetail) -> Table:
    rows = sorted(function.allocations, key=_importance)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("from", overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("commands", justify="right")
    table.add_column("moved", justify="right")
    table.add_column("state", no_wrap=True)
    table.add_column("because", overflow="fold")
    has_cells = any(row.cells for row in rows)
    if has_cells:
        table.add_column("last executions" if function.first else "executions", overflow="fold")
    for row in rows[: detail.allocations]:
        moved = f"{row.moves} of {row.compared}" if row.compared else ""
        cells = [row.path, f"{row.size:,}", str(row.commands or ""), moved]
        last = [_cells(row.cells[-detail.executions :])] if has_cells else []
        table.add_row(*cells, Text(row.state, _STATES.get(row.state, "")), row.reason, *last)
    hidden = len(rows) - detail.allocations
    if hidden > 0:
        table.add_row(Text(f"and {hidden} more (--full)", "dim"))
    return table


def _cells(letters: str) -> Text:
    text = Text()
    for letter in letters:
        text.append(letter, _CELLS.get(letter, "dim"))
    return text


def _times(count: int) -> str:
    return "1 execution" if count == 1 else f"{count:,} executions"
