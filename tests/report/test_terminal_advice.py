"""Advice as text and as JSON say the same."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.report.model import PlanContext, make_plan
from jax_cmdbuf.report.terminal_advice import advice_as_json, print_advice
from jax_cmdbuf.runtime.calibration import shipped_calibration
from jax_cmdbuf.runtime.forecast import Advice, CallerHabits, StepCounts, forecast
from xla_flags.options import CommandBufferUpdateMode as Mode

RECORDED = Path(__file__).parents[1] / "data" / "va_remap" / "attn_block" / "executable.bin.gz"


def test_text_and_json_agree() -> None:
    executable = Executable.from_file(RECORDED)
    conversion = convert(executable, device=load_target("h200").device)
    plan = make_plan(executable, conversion, PlanContext("h200"))
    forecasts = {
        mode: forecast(StepCounts(mode, updated, 14, 1, 1, 0, {}, 7, 1), shipped_calibration())
        for mode, updated in ((Mode.ALWAYS_UPDATE, 14), (Mode.SKIP_TEMP, 9))
    }
    habits = CallerHabits(frozenset({1}))
    advice = Advice(Mode.SKIP_TEMP, 8.0, True, "use it", ("drop them",), forecasts, habits, "of a test")
    console = Console(file=io.StringIO(), width=200)
    print_advice(plan, advice, console)
    assert isinstance(console.file, io.StringIO)
    text, data = console.file.getvalue(), json.loads(advice_as_json(plan, advice))
    assert text.startswith(f"jit_attn_block: {data['verdict']}")
    for mode, each in data["forecasts"].items():
        (row,) = [line for line in text.splitlines() if line.strip().startswith(mode)]
        assert f"{sum(each['microseconds'].values()):,.1f}" in row
    assert all(hint in text for hint in data["hints"])
    (moving,) = data["moving"]
    assert f"arguments that move: {moving}" in text
    assert data["keeps_results"] is True
    assert "the same mode is best if results are dropped: yes" in text
