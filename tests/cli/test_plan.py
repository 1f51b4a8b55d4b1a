from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jax_cmdbuf.api import plan as api
from jax_cmdbuf.cli import main
from jax_cmdbuf.report.model import Plan
from tests.report.programs import a_program, plan_of

EXECUTABLE = Path(__file__).parents[1] / "data/va_remap/mlp_same/executable.bin.gz"

Call = tuple[str, api.PlanOptions, bool]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Replaces planning by the hand-written plan; returns what was asked for."""
    asked: list[Call] = []

    def plan_source(source: str, options: api.PlanOptions, *, must_compile: bool = False) -> Plan:
        asked.append((source, options, must_compile))
        return plan_of(a_program())

    monkeypatch.setattr(api, "plan_source", plan_source)
    return asked


def test_every_option_reaches_the_compilation(calls: list[Call], capsys: pytest.CaptureFixture[str]) -> None:
    words = "plan a.py:f --target=l4 --arg=f32[2] --arg=s32[] --devices=4 --shard=x --shard=y --timeout=5"
    assert main([*words.split(), "--ffi-compatible=t", "--xla_flags=--a --b"]) == 0
    options = api.PlanOptions("l4", 4, ("x", "y"), ("f32[2]", "s32[]"), "--a --b", 5.0, ("t",))
    assert calls == [("a.py:f", options, False)]
    assert "jit_step" in capsys.readouterr().out


def test_nothing_said_is_nothing_decided(calls: list[Call], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "a.py:f"]) == 0
    assert calls[0][1] == api.PlanOptions()
    assert main(["plan", "a.py:f", "--shard=none"]) == 0
    assert calls[1][1].shard == ()


@pytest.mark.parametrize(("kind", "start"), [("text", "╭"), ("json", "{"), ("html", "<!doctype html>")])
def test_each_format_goes_to_a_file(calls: list[Call], tmp_path: Path, kind: str, start: str) -> None:
    path = tmp_path / "plan"
    assert main(["plan", "a.py:f", f"--format={kind}", f"--output={path}"]) == 0
    assert path.read_text().startswith(start)


@pytest.mark.parametrize(("kind", "start"), [("text", "╭"), ("json", "{"), ("html", "<!doctype html>")])
def test_a_comparison_compiles_twice(calls: list[Call], tmp_path: Path, kind: str, start: str) -> None:
    path = tmp_path / "comparison"
    words = [
        "plan",
        "a.py:f",
        "--xla_flags=--base",
        "--compare=--a",
        "--compare=",
        f"--format={kind}",
        "-o",
        str(path),
    ]
    assert main(words) == 0
    assert [(call[1].xla_flags, call[2]) for call in calls] == [("--base --a", True), ("--base", True)]
    assert path.read_text().startswith(start)


def test_a_comparison_builds_on_the_environments_flags(
    calls: list[Call], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    assert main(["plan", "a.py:f", "--compare=--a", "--compare=--b"]) == 0
    assert [call[1].xla_flags for call in calls] == ["--mine --a", "--mine --b"]


def test_one_comparison_is_none(calls: list[Call], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "a.py:f", "--compare=--a"]) == 2
    assert capsys.readouterr().err == "jax-cmdbuf: --compare must be given twice, not 1 times\n"


def test_a_real_executable_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXECUTABLE), "--format=json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["module"] == "jit_mlp_same"
    assert len(data["command_buffers"][0]["commands"]) == 16
    # Counts that XLA logged when it built this executable on a GPU.
    assert {key: len(value) for key, value in data["policy"]["SKIP_PROFILED"].items()} == {
        "constants": 0,
        "persistent": 1,
        "va_remapped": 1,
        "candidates": 10,
    }


def test_full_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXECUTABLE)]) == 0
    assert "more: 0 used by commands" in capsys.readouterr().out
    assert main(["plan", str(EXECUTABLE), "--full"]) == 0
    assert "more:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["no/such/file"],
            "no/such/file is neither a file nor a function: give file.py:function, a serialized",
        ),
        (["x:f", "--target=gtx"], "unknown target 'gtx': use one of a100, "),
        (["x.py:f"], "no such file: x.py"),
        ([str(EXECUTABLE), "--arg=f32[2]"], "--arg goes with a function; "),
        (
            [str(EXECUTABLE), "--compare=", "--compare=--a"],
            "executable.bin.gz is compiled already: flags can be",
        ),
        ([str(EXECUTABLE), "--output=/no/such/folder/x"], "cannot write /no/such/folder/x: "),
        ([""], "an empty name is neither a file nor a function: "),
        ([str(EXECUTABLE), "--timeout=-1"], "--timeout must be more than 0 seconds, not -1"),
        ([__file__], f"which function of {__file__}? Give {__file__}:function"),
        (["x:f", "--xla_flags=--xla_nope"], "XLA refuses the flags: "),
    ],
)
def test_what_goes_wrong_is_one_line_and_status_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("jax-cmdbuf: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
