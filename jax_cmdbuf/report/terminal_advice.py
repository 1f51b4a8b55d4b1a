"""Advice about update modes, for people and as JSON."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jax_cmdbuf.report.model import Plan
from jax_cmdbuf.report.units import share_text
from jax_cmdbuf.runtime.forecast import Advice

__all__ = ["advice_as_json", "print_advice"]

_PARTS = ("update", "remap", "launch", "dispatch")


def print_advice(plan: Plan, advice: Advice, console: Console) -> None:
    """Prints the verdict, a table of the modes, and hints."""
    console.print(Text(f"{plan.executable.module}: {advice.verdict}", style="bold"))
    table = Table(title="Forecast per step, host µs", title_justify="left", box=None, padding=(0, 1))
    for column in ("mode", "updated commands", *_PARTS, "in all"):
        table.add_column(column, justify="left" if column == "mode" else "right")
    for mode, each in advice.forecasts.items():
        updated = share_text(round(each.counts.updated), each.counts.commands)
        parts = (f"{each.microseconds[part]:,.1f}" for part in _PARTS)
        style = "bold" if mode is advice.mode else ""
        table.add_row(mode.name, updated, *parts, f"{each.total:,.1f}", style=style)
    console.print(table)
    for hint in advice.hints:
        console.print(Text(f"→ {hint}"))
    for line in _assumptions(plan, advice):
        console.print(Text(f"• {line}", style="dim"))


def _assumptions(plan: Plan, advice: Advice) -> list[str]:
    habits = advice.habits
    moving = [_name(plan, leaf) for leaf in sorted(habits.moving)]
    return [
        "arguments that move: " + (", ".join(moving) if moving else "none"),
        "results are " + ("kept until the next call has returned" if habits.keeps_results else "dropped"),
        "the same mode is best if results are "
        f"{'dropped' if habits.keeps_results else 'kept'}: {'yes' if advice.is_sure else 'no'}",
        f"costs: {advice.costs}",
        "time of the device is not forecast: where it is longer than the host's, host time is hidden",
    ]


def _name(plan: Plan, leaf: int) -> str:
    index = plan.executable.parameter_allocations[leaf]
    return next(row.label for row in plan.allocations if row.allocation.index == index)


def advice_as_json(plan: Plan, advice: Advice) -> str:
    """The same as data."""
    return (
        json.dumps(
            {
                "module": plan.executable.module,
                "mode": advice.mode.name,
                "saves_us": round(advice.saves, 3),
                "is_sure": advice.is_sure,
                "verdict": advice.verdict,
                "hints": list(advice.hints),
                "moving": [_name(plan, leaf) for leaf in sorted(advice.habits.moving)],
                "keeps_results": advice.habits.keeps_results,
                "costs": advice.costs,
                "forecasts": {
                    mode.name: {
                        "updated": each.counts.updated,
                        "commands": each.counts.commands,
                        "driver_calls": dict(each.counts.driver_calls),
                        "microseconds": {name: round(value, 3) for name, value in each.microseconds.items()},
                    }
                    for mode, each in advice.forecasts.items()
                },
            },
            indent=1,
        )
        + "\n"
    )
