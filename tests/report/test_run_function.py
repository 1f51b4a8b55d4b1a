"""A function's report, folded from executions of recorded loops."""

from __future__ import annotations

import dataclasses

import pytest

from jax_cmdbuf.report.run_function import CELLS, function_of_executions, function_of_snapshot
from jax_cmdbuf.report.run_model import ArgumentUse
from jax_cmdbuf.report.timeline import CellState
from tests.report.runs import BASE, function, replayed, row


def test_every_state_of_a_cell_has_its_own_letter():
    assert set(CELLS) == set(CellState)
    assert len(set(CELLS.values())) == len(CELLS)


def test_verdicts_counts_and_cells_of_a_recorded_loop():
    made = function("two_gemm_drop")
    assert (made.phase, made.steps, made.limit, made.commands) == ("active", 3, 3, 4)
    assert made.persistent == (1, 2, 3, 10)
    assert made.selected == (1, 2, 3, 10)
    assert made.reserved > 0
    result = row(made, 0)
    assert (result.state, result.reason) == ("rejected", "its address changed while it was observed")
    assert (result.cells, result.compared, result.moves, result.places) == ("pPPuuuuu", 7, 7, 2)
    assert (result.is_argument, result.is_result, result.commands) == (False, True, 3)
    weight = row(made, 1)
    assert (weight.cells, weight.moves, weight.places, weight.is_argument) == ("ppprrrrr", 0, 1, True)
    assert made.updated_per_step == 3.0
    assert [each.took_us for each in made.executions] == [50.0] * 8


def test_a_mode_that_remaps_nothing_has_no_profile():
    made = function("two_gemm_drop", "ALWAYS_UPDATE")
    assert (made.phase, made.limit, made.persistent, made.reserved) == ("none", 0, (), 0)
    assert row(made, 1).cells == "========"
    assert made.updated_per_step == 4.0


def test_a_late_move_is_told_from_a_stable_address():
    moved = [
        (each.index, each.cells) for each in function("mlp_change_after").allocations if "R" in each.cells
    ]
    assert moved == [(1, "ppprrRrr")]


def test_failures_are_counted_and_end_the_cells():
    made = function("shared_param_late")
    assert made.failures == 4
    assert row(made, 1).cells == "pppr----"
    assert all(each.error.startswith("ALREADY_EXISTS") for each in made.executions[4:])


@pytest.mark.parametrize("count", [0, 2, 8, 11])
def test_times_belong_to_the_last_executions(count):
    made, conversion = replayed("two_gemm_drop")
    base = dataclasses.replace(BASE, calls=20)
    times = [(float(number), 1.0) for number in range(count)]
    result = function_of_executions(base, made.loaded, conversion, made.executions, times)
    kept = min(count, 8)
    assert [each.began_us for each in result.executions if each.took_us >= 0] == [
        float(number) for number in range(count - kept, count)
    ]
    assert [each.took_us >= 0 for each in result.executions] == [False] * (8 - kept) + [True] * kept
    assert result.first == 12


def test_uses_stand_beside_their_allocation():
    use = ArgumentUse(calls=8, host=8, kind="float")
    assert row(function("two_gemm_drop", uses={1: use}), 1).use == use


def test_a_native_profile_has_verdicts_but_neither_cells_nor_commands():
    made, _ = replayed("two_gemm_drop")
    snapshot = made.executions[-1].snapshot
    uses = {"a_0_.1": ArgumentUse(calls=8, kept=7)}
    base = dataclasses.replace(BASE, runtime="xla", calls=8)
    result = function_of_snapshot(base, snapshot, [(5.0, 1.0)], 4, {0: 4, 1: 0}, uses)
    assert (result.phase, result.persistent, result.commands) == ("active", (1, 2, 3, 10), None)
    assert [each.index for each in result.allocations] == [0, 1, 2, 3, 10]
    moving, weight = row(result, 0), row(result, 1)
    assert (moving.compared, moving.moves, moving.cells) == (4, 4, "")
    assert (weight.compared, weight.moves, weight.is_argument, weight.use) == (4, 0, True, uses["a_0_.1"])
    assert row(result, 2).compared == 0
    assert (result.first, len(result.executions)) == (7, 1)
    assert [each.action for each in result.advice] == ["reuse result"]
