"""A plan in the terminal.

Invariant: what is left out for length is counted in the line that stands for it; nothing disappears silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from jax_cmdbuf.executable.conversion import CommandBuffer
from jax_cmdbuf.executable.thunks import Thunk
from jax_cmdbuf.report.model import AllocationRow, ModeSummary, Plan
from jax_cmdbuf.report.units import bytes_text, count_text, flag_text, share_text
from jax_cmdbuf.runtime.policy import AllocationRole, RoleReason

__all__ = ["Detail", "print_plan", "print_warnings"]

_STYLES: Mapping[AllocationRole, str] = {
    AllocationRole.CONSTANT: "green",
    AllocationRole.REMAPPED: "green",
    AllocationRole.CANDIDATE: "cyan",
    AllocationRole.DYNAMIC: "dim",
}
_COMMAND_BUFFER = "kCommandBuffer"


@dataclass(frozen=True, slots=True)
class Detail:
    """How much to show: at most so many commands of one command buffer, left-out thunks, and allocations."""

    commands: int = 12
    left_out: int = 20
    allocations: int = 25

    @classmethod
    def full(cls) -> Detail:
        """Everything."""
        return cls(1 << 30, 1 << 30, 1 << 30)


def print_plan(plan: Plan, console: Console, detail: Detail | None = None) -> None:
    """Prints the plan: header, warnings, program, allocations, modes."""
    detail = detail or Detail()
    console.print(_header(plan))
    print_warnings(plan, console)
    for trap in _traps(plan):
        console.print(trap)
    console.print(_program(plan, detail))
    console.print(_allocations(plan, detail))
    console.print(_modes(plan))
    for note in (*plan.context.notes, *plan.conversion.notes):
        console.print(Text(f"• {note}", style="dim"))


def print_warnings(plan: Plan, console: Console) -> None:
    """Prints what the reader must know before believing the plan."""
    for warning in plan.context.warnings:
        console.print(Panel(escape(warning), title="WARNING", border_style="bold red", style="bold red"))


def _header(plan: Plan) -> RenderableType:
    executable, context = plan.executable, plan.context
    devices = executable.num_replicas * executable.num_partitions
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("target", f"{escape(context.target_text)}, {count_text(devices, 'device')}")
    grid.add_row("versions", ", ".join(f"{name} {version}" for name, version in context.versions.items()))
    flags = "  ".join(f"{name}={flag_text(value)}" for name, value in context.xla_flags.items())
    grid.add_row("flags", escape(flags) or "all at their default")
    grid.add_row(
        "update mode", plan.effective_mode.name if plan.effective_mode else "unknown to this version"
    )
    grid.add_row("command buffers", _coverage(plan))
    return Panel(grid, title=f"[bold]{escape(executable.module)}", title_align="left", border_style="blue")


def _coverage(plan: Plan) -> str:
    buffers = plan.conversion.command_buffers
    thunks = sum(1 for top in plan.executable.thunks for _ in top.walk())
    outside = len(plan.conversion.left_out)
    return (
        f"{len(buffers)} with {count_text(plan.command_count, 'command')}; "
        f"{outside} of {count_text(thunks, 'thunk')} outside"
        if buffers
        else f"none: {f'all {thunks} thunks run one by one' if thunks != 1 else '1 thunk runs by itself'}"
    )


def _traps(plan: Plan) -> Iterator[RenderableType]:
    for trap in plan.traps:
        row = trap.row
        yield Panel(
            f"[bold]{escape(row.path or '')}[/] (allocation {row.allocation.index}, "
            f"{bytes_text(row.allocation.size)}) is a result, and XLA also uses its memory as scratch: "
            f"{share_text(trap.commands, trap.total)} commands touch it. If the result lies at a new address "
            "each step, all of them must be updated, in every mode. To keep its address, donate an argument "
            "of the same shape for it, or release the result before the next call.",
            title="scratch in a result",
            title_align="left",
            border_style="yellow",
        )


def _program(plan: Plan, detail: Detail) -> RenderableType:
    table = Table(
        title="Program", title_justify="left", title_style="bold", expand=False, box=None, padding=(0, 1)
    )
    table.add_column("thunk", justify="right", style="dim")
    table.add_column("kind")
    table.add_column("HLO instruction", overflow="fold")
    table.add_column("where")
    buffers = {tuple(thunk.id for thunk in each.commands): each for each in plan.conversion.command_buffers}
    for row in _sequence_rows(plan, plan.conversion.sequence, buffers, detail, 0):
        table.add_row(*row)
    return Group(Text(), table)


def _sequence_rows(
    plan: Plan,
    thunks: Sequence[Thunk],
    buffers: Mapping[tuple[int, ...], CommandBuffer],
    detail: Detail,
    depth: int,
) -> Iterator[tuple[str, str, str, str]]:
    indent = "  " * depth
    shown = 0
    for thunk in thunks:
        if thunk.kind == _COMMAND_BUFFER:
            yield from _buffer_rows(thunk, buffers, detail, indent)
            continue
        shown += 1
        if shown > detail.left_out:
            continue
        left_out = plan.conversion.left_out.get(thunk.id)
        reason = f"[yellow]outside[/]: {escape(left_out.detail)}" if left_out else ""
        yield str(thunk.id), f"{indent}[yellow]{thunk.kind}[/]", escape(thunk.name), reason
        for nested in thunk.nested:
            yield from _sequence_rows(plan, nested, buffers, detail, depth + 1)
    if shown > detail.left_out:
        yield "", f"{indent}…", f"{count_text(shown - detail.left_out, 'more thunk')} outside", ""


def _buffer_rows(
    thunk: Thunk, buffers: Mapping[tuple[int, ...], CommandBuffer], detail: Detail, indent: str
) -> Iterator[tuple[str, str, str, str]]:
    (commands,) = thunk.nested
    buffer = buffers.get(tuple(command.id for command in commands))
    name = buffer.name if buffer else ""
    used = len(buffer.allocations) if buffer else 0
    yield (
        "",
        f"{indent}[bold green]command buffer[/]",
        f"[bold]{name}[/]",
        f"{count_text(len(commands), 'thunk')}, {count_text(used, 'allocation')}",
    )
    for command in commands[: detail.commands]:
        nested = sum(1 for _ in command.walk()) - 1
        more = f"with {count_text(nested, 'nested thunk')}" if nested else ""
        yield str(command.id), f"{indent}[green]│[/] {command.kind}", escape(command.name), more
    if len(commands) > detail.commands:
        yield "", f"{indent}[green]│[/] …", f"{len(commands) - detail.commands} more", ""


def _allocations(plan: Plan, detail: Detail) -> RenderableType:
    table = Table(title="Allocations", title_justify="left", title_style="bold", box=None, padding=(0, 1))
    table.add_column("#", justify="right", style="dim")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("cmds", justify="right")
    for summary in plan.modes:
        table.add_column(summary.mode.name.replace("_", "_\n"), no_wrap=True)
    table.add_column("reason", no_wrap=True)
    # Last, because paths are long: what does not fit continues below, next to nothing else.
    table.add_column("path (and instructions that use it), or values", overflow="fold")
    # Scalars of reducers say little and are many: they are listed last, so that they are the first to be cut.
    ordered = sorted(
        plan.allocations,
        key=lambda row: (row.allocation.is_thread_local, -row.commands, row.allocation.index),
    )
    listed = ordered[: detail.allocations]
    if detail != Detail.full():
        listed = [row for row in listed if not row.allocation.is_thread_local]
    for row in listed:
        table.add_row(*_allocation_cells(row))
    hidden = ordered[len(listed) :]
    if hidden:
        size = bytes_text(sum(row.allocation.size for row in hidden))
        scalars = sum(1 for row in hidden if row.allocation.is_thread_local)
        in_use = sum(1 for row in hidden if row.commands)
        what = f"{len(hidden)} more: {in_use} used by commands, {scalars} thread-local"
        table.add_row("…", size, *[""] * (len(plan.modes) + 3), what)
    reasons = dict.fromkeys(verdict.reason for row in listed for verdict in row.verdicts.values())
    legend = [Text(f"   {_short(reason)}: {reason.value}", style="dim") for reason in reasons]
    return Group(Text(), table, *legend)


def _short(reason: RoleReason) -> str:
    return reason.name.lower().replace("_", " ")


def _allocation_cells(row: AllocationRow) -> tuple[str, ...]:
    verdicts = row.verdicts.values()
    reasons = dict.fromkeys(_short(verdict.reason) for verdict in verdicts)
    return (
        str(row.allocation.index),
        bytes_text(row.allocation.size),
        "donated" if row.is_donated else row.kind,
        str(row.commands or ""),
        *(f"[{_STYLES[verdict.role]}]{verdict.role.value}[/]" for verdict in verdicts),
        "; ".join(reasons),
        escape(row.label) + _users(row),
    )


def _users(row: AllocationRow) -> str:
    """The instructions that use an allocation, where its name does not already consist of them."""
    if row.path is None or not row.instructions:
        return ""
    rest = len(row.instructions) - 2
    more = f", … {rest} more" if rest > 0 else ""
    return f"  [dim]{escape(', '.join(row.instructions[:2]) + more)}[/]"


def _modes(plan: Plan) -> RenderableType:
    table = Table(title="Update modes", title_justify="left", title_style="bold", box=None, padding=(0, 1))
    table.add_column("mode")
    table.add_column("persistent", justify="right")
    table.add_column("candidates", justify="right")
    table.add_column("updated if only outputs move", justify="right")
    table.add_column("updated at worst", justify="right")
    table.add_column("reserved addresses", justify="right")
    for summary in plan.modes:
        chosen = summary.mode is plan.effective_mode
        table.add_row(*_mode_cells(summary), style="bold" if chosen else "")
    return Group(Text(), table, Text())


def _mode_cells(summary: ModeSummary) -> tuple[str, ...]:
    classes = summary.classification
    reserved = bytes_text(summary.reserved_bytes)
    if classes.candidates:
        reserved += f" to {bytes_text(summary.reserved_bytes_at_most)}"
    return (
        summary.mode.name,
        str(len(classes.persistent)),
        str(len(classes.candidates)),
        share_text(summary.updated_if_outputs_move, summary.commands),
        share_text(summary.updated_at_worst, summary.commands),
        reserved,
    )
