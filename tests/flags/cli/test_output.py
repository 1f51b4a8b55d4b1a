from __future__ import annotations

import json

import pytest

from xla_flags import Diagnostic, Severity, Span
from xla_flags.cli.output import (
    console,
    diagnostic_json,
    print_json,
    print_json_line,
    print_remark,
    say,
    table,
)

REMARK = Diagnostic(Severity.ERROR, "bad-bool", Span(8, 9), "not that", "true", "hint")


def test_json_is_one_line_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"key": ["x" * 50] * 5, "surrogate": "\udcff"}
    print_json_line(value)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == value
    print_json(value)
    printed = capsys.readouterr().out
    assert printed.count("\n") > 1
    assert json.loads(printed) == value


def test_remarks_are_not_folded(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_remark(REMARK, "--xla_a=x " + "--b " * 20, "> ")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "> error[bad-bool]: not that"
    assert lines[2] == ">   |         ^"
    say("x" * 100)
    assert capsys.readouterr().out == "x" * 100 + "\n"


def test_what_a_row_is_about_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    console().print(table(("flag", "value"), [["n" * 40, "v " * 30]]))
    assert "n" * 40 in capsys.readouterr().out


def test_markup_in_flags_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    say("[red]x[/red] \x1b[31m")
    printed = capsys.readouterr().out
    assert "[red]x[/red]" in printed
    assert "\x1b" not in printed


def test_a_remark_as_json() -> None:
    assert diagnostic_json(REMARK) == {
        "severity": "error",
        "code": "bad-bool",
        "span": [8, 9],
        "message": "not that",
        "suggestion": "true",
        "hint": "hint",
    }
