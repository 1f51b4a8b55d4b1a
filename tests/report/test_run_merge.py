"""Reports of several processes become one, or one sentence."""

from __future__ import annotations

import dataclasses

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.report.run_merge import merge_runs
from tests.report.runs import function, report


def of_process(index, count=3):
    made = dataclasses.replace(function("two_gemm_drop"), process=index, device=index)
    return report(made, index=index, count=count)


def test_processes_and_functions_are_in_order():
    merged = merge_runs([of_process(2), of_process(0)], ["c", "a"])
    assert [each.index for each in merged.processes] == [0, 2]
    assert [each.process for each in merged.functions] == [0, 2]
    assert merged.missing == (1,)


def test_merged_reports_can_be_merged():
    parts = [of_process(index) for index in range(3)]
    by_halves = merge_runs([merge_runs(parts[:2], ["a", "b"]), parts[2]], ["ab", "c"])
    assert by_halves == merge_runs(parts, ["a", "b", "c"])
    assert by_halves.missing == ()


def test_one_report_is_itself():
    assert merge_runs([of_process(1)], ["a"]) == of_process(1)


def test_one_process_twice():
    with pytest.raises(InputError, match="a and b are both of process 0 of 3"):
        merge_runs([of_process(0), of_process(0)], ["a", "b"])


def test_runs_of_different_sizes():
    with pytest.raises(InputError, match="b is of a run of 2 processes, a of one of 3"):
        merge_runs([of_process(0), of_process(1, 2)], ["a", "b"])


def test_nothing():
    with pytest.raises(InputError, match="at least one"):
        merge_runs([], [])
