"""The line on the terminal, and nothing where there is none."""

from __future__ import annotations

import io
import sys

from rich.console import Console

from jax_cmdbuf.cli.run_progress import run_progress


def test_a_terminal_shows_what_is_going_on():
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    stdout = sys.stdout
    with run_progress("train.py", lambda: "7 calls, [step]: active", console):
        assert sys.stdout is stdout  # not a terminal: the script's output stays its own
    text = console.file.getvalue()
    assert "train.py 0:00" in text
    assert "7 calls, [step]: active" in text
    assert text.endswith("\x1b[1A\x1b[2K")  # the line is taken away again


def test_a_long_line_is_cut():
    console = Console(file=io.StringIO(), force_terminal=True, width=40)
    with run_progress("train.py", lambda: "x" * 200, console):
        pass
    assert "x" * 40 not in console.file.getvalue()


def test_without_a_terminal_nothing_is_touched(capsys):
    called = []
    streams = sys.stdout, sys.stderr
    with run_progress("train.py", lambda: called.append(1) or ""):
        assert (sys.stdout, sys.stderr) == streams
    assert called == []
    assert capsys.readouterr().err == ""
