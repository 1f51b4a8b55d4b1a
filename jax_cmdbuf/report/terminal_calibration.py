"""A calibration as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jax_cmdbuf.runtime.calibration import MEASURED, Calibration

__all__ = ["print_calibration"]


def print_calibration(calibration: Calibration, console: Console) -> None:
    """Prints each cost with what it is the cost of."""
    console.print(
        Text(f"{calibration.gpu}, driver {calibration.driver}, jaxlib {calibration.jaxlib}", style="bold")
    )
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("cost")
    table.add_column("µs", justify="right")
    table.add_column("of")
    for name, meaning in MEASURED.items():
        table.add_row(name, f"{calibration[name]:,.2f}", Text(meaning))
    console.print(table)
