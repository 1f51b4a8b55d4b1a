"""``jax-cmdbuf replay``: the JSON contract, the table, and errors in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jax_cmdbuf.cli import main

DATA = Path(__file__).parents[1] / "data" / "va_remap"


def paths(name, mode="SKIP_PROFILED"):
    return [str(DATA / name / f"{mode}.json.gz"), "--executable", str(DATA / name / "executable.bin.gz")]


def recorded(name, mode="SKIP_PROFILED"):
    return json.loads(gzip.decompress((DATA / name / f"{mode}.json.gz").read_bytes()))


def output(capsys, *arguments):
    assert main(["replay", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["two_gemm_drop", "scan_loop", "shared_param", "foreign_param"])
def test_json_has_the_recorded_kinds_and_fields_in_order(capsys, name):
    value = json.loads(output(capsys, *paths(name), "--format=json"))
    assert list(value) == ["executions"]
    memory = ("allocate", "deallocate")
    for execution, expected in zip(value["executions"], recorded(name)["executions"], strict=True):
        assert list(execution) == ["events"]
        found = [event for event in execution["events"] if event["kind"] not in memory]
        assert found == [event for event in expected["events"] if event["kind"] not in memory]


def test_an_execution_that_xla_fails_ends_with_an_error(capsys):
    value = json.loads(output(capsys, *paths("shared_param_late"), "--format=json"))
    kinds = [execution["events"][-1]["kind"] for execution in value["executions"]]
    assert kinds[4:] == ["error"] * 4
    assert value["executions"][4]["events"][-1]["code"] == "ALREADY_EXISTS"


def test_predicted_addresses_stand_beside_the_events(capsys):
    value = json.loads(output(capsys, *paths("two_gemm_drop"), "--format=json", "--predict-addresses"))
    predicted = value["predicted_addresses"]
    assert predicted["reused"] == predicted["correct"] > 0
    assert list(predicted["allocations"][0]) == ["size", "recorded", "predicted"]


def test_addresses_alone_need_no_executable(capsys):
    text = output(capsys, paths("two_gemm_drop")[0], "--predict-addresses")
    assert "predicted reuses are as recorded" in text


def test_the_table_has_states_reasons_and_the_verdict(capsys):
    text = output(capsys, *paths("mlp_same"))
    assert "mlp_same  SKIP_PROFILED, 8 executions" in text
    assert "its address changed while it was observed" in text
    assert "agrees with the recording" in text


def test_guarded_nothing_fails_and_the_demotion_has_its_reason(capsys):
    text = output(capsys, *paths("shared_param_late"), "--guard")
    assert "failed" not in text
    assert "demoted" in text
    assert "ALREADY_EXISTS" in text
    assert "agrees" not in text


def test_a_recording_that_differs_is_told(capsys, tmp_path):
    changed = recorded("two_gemm_drop")
    changed["executions"][4]["events"] = []
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(changed))
    text = output(capsys, str(path), *paths("two_gemm_drop")[1:])
    assert "differs in execution 4" in text


def test_output_goes_to_a_file(capsys, tmp_path):
    for form in ("text", "json"):
        target = tmp_path / form
        assert output(capsys, *paths("single_kernel"), f"--format={form}", "-o", str(target)) == ""
        assert "executions" in target.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.json", "--executable", "x"], "cannot read scenario nowhere.json"),
        ([paths("two_gemm_drop")[0]], "--executable"),
        ([*paths("two_gemm_drop"), "--target", "h900"], "unknown target 'h900'"),
        ([paths("mlp_same")[0], *paths("two_gemm_drop")[1:]], "the recording is of jit_mlp_same"),
        ([paths("mlp_same")[0], "--executable", paths("mlp_same")[0]], ""),
        (["--format=xml"], "invalid choice"),
    ],
)
def test_misuse_is_one_line_on_stderr_and_status_2(capsys, arguments, message):
    assert main(["replay", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "Traceback" not in captured.err
