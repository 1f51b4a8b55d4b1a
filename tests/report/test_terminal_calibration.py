"""The table of a calibration has a row for every cost."""

from __future__ import annotations

import io

from rich.console import Console

from jax_cmdbuf.report.terminal_calibration import print_calibration
from jax_cmdbuf.runtime.calibration import MEASURED, shipped_calibration


def test_every_cost_has_a_row() -> None:
    console = Console(file=io.StringIO(), width=120)
    calibration = shipped_calibration()
    print_calibration(calibration, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("NVIDIA H200, driver 13.0, jaxlib ")
    for name in MEASURED:
        (row,) = [line for line in lines if line.split("│")[0].strip() == name]
        assert f"{calibration[name]:,.2f}" in row
