"""Advice as text and as JSON say the same."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from jax_cmdbuf.api.advisor import advise_plan
from jax_cmdbuf.api.plan import plan_source
from jax_cmdbuf.report.terminal_advice import advice_as_json, print_advice

MLP = Path(__file__).parents[1] / "data" / "va_remap" / "attn_block" / "executable.bin.gz"


def test_text_and_json_agree() -> None:
    plan = plan_source(str(MLP))
    advice = advise_plan(plan)
    console = Console(file=io.StringIO(), width=200)
    print_advice(plan, advice, console)
    assert isinstance(console.file, io.StringIO)
    text, data = console.file.getvalue(), json.loads(advice_as_json(plan, advice))
    assert text.startswith(f"jit_attn_block: {data['verdict']}")
    for mode, each in data["forecasts"].items():
        (row,) = [line for line in text.splitlines() if line.strip().startswith(mode)]
        assert f"{sum(each['microseconds'].values()):,.1f}" in row
    assert all(hint in text for hint in data["hints"])
    assert (data["moving"], data["keeps_results"]) == ([], True)
