"""Two plans in the terminal, differences first. Invariant: both sides show the same rows."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from jax_cmdbuf.report.compare import Comparison
from jax_cmdbuf.report.terminal_plan import Detail, print_warnings
from jax_cmdbuf.report.units import bytes_text, share_text

__all__ = ["print_comparison"]


def print_comparison(comparison: Comparison, console: Console, detail: Detail | None = None) -> None:
    """Prints what differs, then the update modes of both."""
    detail = detail or Detail()
    header = Table.grid(padding=(0, 2))
    for side, label in zip("AB", comparison.labels, strict=True):
        header.add_row(Text(side, style="bold cyan"), escape(label) or "no flags")
    left = comparison.left
    title = f"[bold]{escape(left.executable.module)}[/] on {escape(left.context.target_text)}"
    console.print(Panel(header, title=title, title_align="left", border_style="blue"))
    for plan in (comparison.left, comparison.right):
        print_warnings(plan, console)
    console.print(_differences(comparison, detail.allocations))
    console.print(_modes(comparison))
    for note in dict.fromkeys((*comparison.left.context.notes, *comparison.right.context.notes)):
        console.print(Text(f"• {note}", style="dim"))


def _differences(comparison: Comparison, limit: int) -> RenderableType:
    differences = comparison.differences
    if not differences:
        return Text("The two plans are the same.\n", style="bold")
    table = Table(title="Differences", title_justify="left", title_style="bold", box=None, padding=(0, 1))
    for column in ("", "A", "B"):
        table.add_column(column, overflow="fold")
    for each in differences[:limit]:
        table.add_row(escape(each.what), escape(each.left), escape(each.right))
    if len(differences) > limit:
        table.add_row("…", f"{len(differences) - limit} more", "")
    return Group(Text(), table)


def _modes(comparison: Comparison) -> RenderableType:
    table = Table(title="Update modes", title_justify="left", title_style="bold", box=None, padding=(0, 1))
    for column in (
        "mode",
        "",
        "persistent",
        "candidates",
        "updated if only outputs move",
        "reserved at most",
    ):
        table.add_column(column, justify="left" if column in ("mode", "") else "right")
    for pair in zip(comparison.left.modes, comparison.right.modes, strict=True):
        for side, summary in zip("AB", pair, strict=True):
            table.add_row(
                summary.mode.name if side == "A" else "",
                Text(side, style="cyan"),
                str(len(summary.classification.persistent)),
                str(len(summary.classification.candidates)),
                share_text(summary.updated_if_outputs_move, summary.commands),
                bytes_text(summary.reserved_bytes_at_most),
            )
    return Group(Text(), table, Text())
