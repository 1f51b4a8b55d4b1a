"""Replays from files: target, guard, comparison with the recording, predicted addresses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jax_cmdbuf.api.replay import compare, predict_recording, replay_recording
from jax_cmdbuf.errors import InputError, TargetError

DATA = Path(__file__).parents[1] / "data" / "va_remap"
SCENARIO, EXECUTABLE = (
    DATA / "two_gemm_drop" / "SKIP_PROFILED.json.gz",
    DATA / "two_gemm_drop" / "executable.bin.gz",
)


def test_a_replay_agrees_with_its_recording():
    comparison = compare(replay_recording(SCENARIO, EXECUTABLE))
    assert comparison.differing == ()
    assert comparison.executions == 8
    assert comparison.events == 3 * 2 + 5 + 4 * 4


def test_a_changed_recording_is_told_by_execution(tmp_path):
    recording = json.loads(gzip.decompress(SCENARIO.read_bytes()))
    recording["executions"][5]["events"][1]["remapped"] = 3
    recording["executions"][6]["error"] = "INTERNAL: made up"
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(recording))
    assert compare(replay_recording(path, EXECUTABLE)).differing == (5, 6)


def test_the_target_decides_what_is_recorded(tmp_path):
    assert compare(replay_recording(SCENARIO, EXECUTABLE, target="h100")).differing == ()
    with pytest.raises(TargetError, match="unknown target"):
        replay_recording(SCENARIO, EXECUTABLE, target="h900")
    recording = json.loads(gzip.decompress(SCENARIO.read_bytes())) | {"device": "some other GPU"}
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(recording))
    assert compare(replay_recording(path, EXECUTABLE)).differing == ()


def test_guarded_nothing_fails_where_plain_execution_would_run():
    folder = DATA / "shared_param_late"
    paths = folder / "SKIP_PROFILED.json.gz", folder / "executable.bin.gz"
    as_xla, guarded = replay_recording(*paths), replay_recording(*paths, guarded=True)
    errors = [
        sum(event.kind == "error" for execution in each.executions for event in execution.events)
        for each in (as_xla, guarded)
    ]
    assert errors == [4, 0]


def test_addresses_of_a_scenario_are_predicted():
    prediction = predict_recording(SCENARIO)
    assert prediction.reused == prediction.correct > 5
    assert len(prediction.allocations) > prediction.reused


def test_addresses_of_a_whole_process_are_predicted(tmp_path):
    lines = [
        {"op": "allocate", "address": 2 << 21, "size": 4},
        {"op": "deallocate", "address": 2 << 21, "size": 4},
        {"op": "allocate", "address": 2 << 21, "size": 1000},
    ]
    path = tmp_path / "allocator.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    prediction = predict_recording(path)
    assert (len(prediction.allocations), prediction.reused, prediction.correct) == (2, 1, 1)


@pytest.mark.parametrize("content", [b"no json", b"[1]", b"\xff"])
@pytest.mark.parametrize("name", ["scenario.json", "allocator.jsonl"])
def test_what_is_no_recording_is_refused(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=name):
        predict_recording(path)


def test_files_that_are_not_there_are_refused():
    for call in (
        lambda: predict_recording("nowhere.json"),
        lambda: replay_recording("nowhere.json", EXECUTABLE),
        lambda: replay_recording(SCENARIO, "nowhere.bin"),
    ):
        with pytest.raises(InputError, match="nowhere"):
            call()


@pytest.mark.parametrize("content", [{}, {"module": "jit_f"}, 3, None])
def test_json_without_executions_predicts_nothing(tmp_path, content):
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"scenario\.json is not a recording: it holds no executions"):
        predict_recording(path)


def test_a_file_that_cannot_be_read_is_named_without_pythons_words(tmp_path):
    for call in (lambda: predict_recording(tmp_path), lambda: replay_recording(tmp_path, EXECUTABLE)):
        with pytest.raises(InputError, match=r"cannot read .*: Is a directory$"):
            call()
