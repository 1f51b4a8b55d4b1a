"""``jax-cmdbuf advise``: forecasts of a compiled program, by name of argument; errors in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jax_cmdbuf.cli.entry import main

RECORDED = Path(__file__).parents[1] / "data" / "va_remap"
MLP = str(RECORDED / "mlp_same" / "deviceless.bin.gz")


def test_a_table_and_what_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", MLP, "--results", "dropped"]) == 0
    out = capsys.readouterr().out
    assert "jit_mlp_same: SKIP_TEMP is forecast to save" in out
    assert "results are dropped" in out
    assert "costs: NVIDIA H200" in out
    assert out.count("of 16 (") == 3


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", MLP, "--moving", "arguments[0][0]", "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["moving"] == ["arguments[0][0]"]
    assert found["forecasts"]["ALWAYS_UPDATE"]["updated"] == 16
    assert set(found["forecasts"]) == {"ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--moving", "biases"], "has no argument biases; it has: arguments"),
        (["--calibration", "nowhere.json"], "cannot read nowhere.json: No such file"),
        (["--results", "lost"], "invalid choice: 'lost'"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", MLP, *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
