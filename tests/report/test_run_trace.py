"""The trace: events as Chrome's format has them, tracks by device and function."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

from jax_cmdbuf.report.run_model import ExecutionRun, RunReport
from jax_cmdbuf.report.run_trace import run_as_trace
from tests.report.runs import BASE, PROCESS, function, report


def events(made, phase=None):
    data = json.loads(run_as_trace(made))
    assert data["displayTimeUnit"] == "ms"
    return [each for each in data["traceEvents"] if phase in (None, each["ph"])]


def names(made, kind):
    return {
        (each["pid"], each["tid"]): each["args"]["name"] for each in events(made, "M") if each["name"] == kind
    }


def test_a_slice_for_each_execution_named_by_what_happened():
    slices = events(report(function("two_gemm_drop")), "X")
    assert [each["name"] for each in slices] == ["plain thunks"] * 3 + ["record"] + ["update"] * 4
    assert [each["args"]["execution"] for each in slices] == [*range(8)]
    assert slices[4]["args"]["commands updated"] == 3
    assert all(each["ts"] >= 0 and each["dur"] == 50.0 for each in slices)
    assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in pairwise(slices))
    assert [each["name"] for each in events(report(function("shared_param_late")), "X")][4:] == ["fails"] * 4


def test_the_decision_is_a_mark_and_commands_are_counters():
    made = report(function("two_gemm_drop"))
    (mark,) = events(made, "i")
    assert mark["name"] == "profile decided: active"
    assert [each["args"] for each in events(made, "C")][-1] == {"updated": 3, "skipped": 1}


def test_a_track_for_each_device_and_function():
    one = function("two_gemm_drop")
    functions = (
        one,
        dataclasses.replace(one, signature=1),
        dataclasses.replace(one, device=1),
        dataclasses.replace(one, process=1, runtime="xla", target="NVIDIA H200"),
    )
    processes = (PROCESS, dataclasses.replace(PROCESS, index=1))
    made = RunReport(processes, functions)
    assert list(names(made, "process_name").values()) == [
        "process 0, device 0: h200 (simulated)",
        "process 0, device 1: h200 (simulated)",
        "process 1, device 0: NVIDIA H200",
    ]
    assert [*names(made, "thread_name")] == [(1, 1), (1, 2), (2, 1), (3, 1)]
    assert {(each["pid"], each["tid"]) for each in events(made, "X")} == {(1, 1), (1, 2), (2, 1), (3, 1)}


def test_processes_have_one_origin():
    later = dataclasses.replace(PROCESS, index=1, began_us=PROCESS.began_us + 10)
    one = dataclasses.replace(BASE, executions=(ExecutionRun(PROCESS.began_us + 20, 1.0),))
    made = RunReport((later, PROCESS), (one, dataclasses.replace(one, process=1)))
    assert [each["ts"] for each in events(made, "X")] == [20.0, 20.0]


def test_what_was_not_timed_has_no_slice():
    one = dataclasses.replace(BASE, executions=(ExecutionRun(-1.0, -1.0), ExecutionRun(2_000_000.0, 3.0)))
    assert [each["args"]["execution"] for each in events(report(one), "X")] == [1]
