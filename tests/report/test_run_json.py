"""A report's file: the round trip, the version, and what is not a report."""

from __future__ import annotations

import json

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.report.run_json import SCHEMA, VERSION, load_run, read_run, run_as_dict, run_as_json
from jax_cmdbuf.report.run_model import ArgumentUse, RunReport
from tests.report.runs import PROCESS, function, report


@pytest.fixture
def whole():
    uses = {1: ArgumentUse(calls=8, host=8, kind="float", same_as="x")}
    return report(function("two_gemm_drop", uses=uses), function("shared_param_late"), notes=("a", "ü"))


def test_reading_gives_back_what_was_written(whole):
    assert read_run(run_as_json(whole), "here") == whole
    assert read_run(run_as_json(RunReport((PROCESS,))), "here") == RunReport((PROCESS,))


def test_the_names_of_version_1(whole):
    data = run_as_dict(whole)
    assert (data["schema"], data["version"]) == (SCHEMA, VERSION) == ("jax_cmdbuf.run", 1)
    assert list(data) == ["schema", "version", "processes", "functions"]
    assert set(data["processes"][0]) == {
        "index",
        "count",
        "host",
        "pid",
        "platform",
        "devices",
        "versions",
        "command",
        "outcome",
        "detail",
        "status",
        "began_us",
        "took_us",
        "notes",
    }
    assert set(data["functions"][0]) == {
        "process",
        "function",
        "signature",
        "arguments",
        "device",
        "runtime",
        "target",
        "requested",
        "effective",
        "reason",
        "remedy",
        "phase",
        "steps",
        "limit",
        "calls",
        "failures",
        "commands",
        "persistent",
        "selected",
        "reserved",
        "allocations",
        "first",
        "executions",
        "hazards",
        "advice",
        "problem",
    }
    assert set(data["functions"][0]["allocations"][0]) == {
        "index",
        "size",
        "path",
        "role",
        "is_argument",
        "is_result",
        "state",
        "reason",
        "commands",
        "compared",
        "moves",
        "places",
        "cells",
        "use",
    }
    assert set(data["functions"][0]["executions"][0]) == {
        "began_us",
        "took_us",
        "fallbacks",
        "recorded",
        "updated",
        "skipped",
        "submitted",
        "transition",
        "error",
    }
    assert set(data["functions"][0]["advice"][0]) == {"action", "path", "others", "commands", "text"}


def test_each_process_and_function_has_its_line(whole):
    assert len(run_as_json(whole).splitlines()) == 2 + 1 + (1 + 1 + 1) + (1 + 2 + 1) + 1


def test_unknown_keys_are_passed_over_and_new_ones_may_be_missing(whole):
    data = run_as_dict(whole)
    data["later"] = 1
    data["functions"][0]["later"] = {"x": []}
    del data["functions"][0]["problem"]
    assert read_run(json.dumps(data), "here") == whole


def broken(change):
    data = run_as_dict(report())
    change(data)
    return json.dumps(data)


TEXT = run_as_json(report())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no report of a run, or was cut off"),
        (TEXT[: len(TEXT) // 2], "was cut off"),
        ("[]", "is no report of a run: write one with"),
        ('{"schema": "other"}', "is no report of a run: write one with"),
        ("[" * 100_000, "is no report of a run"),
        (broken(lambda data: data.update(version=2)), "has version 2 of a run's report; version 1 is known"),
        (broken(lambda data: data.pop("processes")), "it has no processes"),
        (broken(lambda data: data.update(functions={})), "functions is no list"),
        (broken(lambda data: data["functions"][0].update(device="0")), r"functions\[0\].device is no int"),
        (broken(lambda data: data["functions"][0].update(device=True)), "device is no int"),
        (
            broken(lambda data: data["functions"][0]["allocations"].append(3)),
            r"allocations\[5\] is no object",
        ),
        (
            broken(lambda data: data["functions"][0].update(process=4)),
            "functions of a process that is not in it",
        ),
        (broken(lambda data: data.update(processes=[])), "damaged"),
    ],
)
def test_what_is_no_report_is_one_sentence(text, words):
    with pytest.raises(InputError, match=words) as caught:
        read_run(text, "here.json")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("here.json ")


def test_files(tmp_path, whole):
    path = tmp_path / "a.json"
    path.write_text(run_as_json(whole))
    assert load_run(path) == whole
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="it is not text"):
        load_run(path)
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        load_run(tmp_path / "none.json")
