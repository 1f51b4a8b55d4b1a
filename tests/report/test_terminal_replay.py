"""The timeline on a terminal, without colours and with few columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from jax_cmdbuf.report.terminal_replay import show_timeline
from jax_cmdbuf.report.timeline import CellState, Column, Row, Timeline

NOTHING = Column(0, 0, 0, 0, 0, "", "")


def shown(timeline, width=100, colour=False):
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        _environ={},
    )
    show_timeline(timeline, console)
    return console.file.getvalue()


def row(*cells, state="remapped", path="params['w']"):
    return Row(7, 65536, path, "candidate", state, "its address did not change", cells)


@pytest.fixture
def small():
    columns = (
        Column(1, 0, 0, 0, 0, "", ""),
        Column(0, 4, 0, 0, 1, "active", ""),
        Column(0, 0, 3, 1, 1, "", ""),
        Column(0, 0, 0, 0, 0, "", "ALREADY_EXISTS: taken"),
    )
    cells = (CellState.PROFILED, CellState.REMAPPED, CellState.REMAPPED_MOVED, CellState.NOT_RUN)
    return Timeline("a_loop", "SKIP_PROFILED", (row(*cells),), columns)


def test_snapshot(small):
    lines = [line.rstrip() for line in shown(small).splitlines()]
    assert lines[:11] == [
        "a_loop  SKIP_PROFILED, 4 executions",
        "                                     0   1   2   3",
        "   7 params['w']                     p   r   R   -",
        "     run as plain thunks             1",
        "     commands recorded                   4",
        "     commands updated                        3",
        "     commands skipped                        1",
        "     command buffers submitted           1   1",
        "     profile decided                    on",
        "     failed                                      x",
        "p profiled   r at its reservation address   R at its reservation address, other memory mapped there",
    ]
    assert "execution 3 failed: ALREADY_EXISTS: taken" in lines
    assert "         7  65,536  params['w']  remapped  its address did not change" in lines


@pytest.mark.parametrize("state", CellState)
def test_every_state_has_a_letter_and_a_meaning(state):
    text = shown(Timeline("t", "m", (row(state),), (NOTHING,)), width=200)
    assert len(text.splitlines()) >= 4


def test_letters_are_all_different():
    cells = tuple(CellState)
    text = shown(Timeline("t", "m", (row(*cells),), (NOTHING,) * len(cells)), width=200)
    letters = text.splitlines()[2].split()[2:]
    assert len(set(letters)) == len(cells)


def test_many_executions_are_shown_in_parts(small):
    many = Timeline("t", "m", (row(*[CellState.SAME] * 30),), (NOTHING,) * 30)
    text = shown(many, width=100)
    assert text.count("params['w']") == 3
    assert " 29" in text


def test_colours_are_used_on_a_terminal_only(small):
    assert "\x1b[" in shown(small, colour=True)
    assert "\x1b[" not in shown(small)


def test_a_recording_without_executions(small):
    assert "0 executions" in shown(Timeline("empty", "SKIP_TEMP", (), ()))
