"""A run's report as a value: what is worked out from its fields."""

from __future__ import annotations

import dataclasses

from jax_cmdbuf.report.run_model import Advice, ExecutionRun, RunReport, similar
from tests.report.runs import BASE, PROCESS, function


def executions(*rows):
    """Executions of (fallbacks, recorded, updated, submitted)."""
    return tuple(ExecutionRun(-1.0, -1.0, a, b, c, 0, d) for a, b, c, d in rows)


def test_the_steady_state_begins_after_the_first_recording():
    made = dataclasses.replace(
        BASE, executions=executions((1, 0, 0, 0), (0, 5, 0, 1), (0, 0, 2, 1), (0, 0, 4, 1))
    )
    assert [each.updated for each in made.replays] == [2, 4]
    assert made.updated_per_step == 3.0


def test_a_recording_that_is_no_longer_kept_leaves_the_steady_state():
    made = dataclasses.replace(BASE, first=900, executions=executions((0, 0, 1, 1), (0, 0, 1, 1)))
    assert made.updated_per_step == 1.0


def test_without_a_second_submission_there_is_no_steady_state():
    assert dataclasses.replace(BASE, executions=executions((0, 5, 0, 1))).updated_per_step is None
    assert BASE.updated_per_step is None


def test_only_further_signatures_have_a_number():
    assert BASE.label == "step"
    assert dataclasses.replace(BASE, signature=2).label == "step (signature 2)"


def test_advice_names_one_path_and_counts_the_others():
    assert Advice("donate", "p['a']", (), 1, "").subject == "p['a']"
    assert Advice("donate", "p['a']", ("p['b']", "p['c']"), 1, "").subject == "p['a'] and 2 more"


def test_processes_that_are_not_there_are_known():
    made = RunReport(tuple(dataclasses.replace(PROCESS, index=index, count=4) for index in (0, 2)))
    assert made.missing == (1, 3)
    assert made.process(2).index == 2


def test_devices_that_did_the_same_are_one_group():
    first = function("two_gemm_drop")
    same = dataclasses.replace(first, device=1, process=1)
    other = dataclasses.replace(first, device=2, persistent=(1,))
    assert [[each.device for each in group] for group in similar([first, other, same])] == [[0, 1], [2]]
