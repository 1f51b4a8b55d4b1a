"""``jax-cmdbuf report``: files read again, processes merged, and what is not a report."""

from __future__ import annotations

import dataclasses
import json
import socket

import pytest

from jax_cmdbuf.cli import main
from jax_cmdbuf.report.run_json import load_run, run_as_json
from tests.cli.run_scripts import TWO_GEMM, start
from tests.report.runs import function, report


def of_process(index, count=2):
    made = dataclasses.replace(function("two_gemm_drop"), process=index, device=index)
    return report(made, index=index, count=count)


@pytest.fixture
def files(tmp_path):
    """The reports of two processes."""
    paths = [tmp_path / f"run.process{index}.json" for index in (0, 1)]
    for index, path in enumerate(paths):
        path.write_text(run_as_json(of_process(index)))
    return [str(path) for path in paths]


def test_two_processes_are_one_report(files, capsys):
    assert main(["report", *files]) == 0
    out = capsys.readouterr().out
    assert "process 0 of 2 on here" in out
    assert "8 executions on device 0 of process 0 and device 1 of process 1 (simulated h200)" in out
    assert "missing" not in out


def test_a_missing_process_is_said(files, capsys):
    assert main(["report", files[1]]) == 0
    assert "reports of process 0 are missing" in capsys.readouterr().out


def test_all_forms(files, tmp_path, capsys):
    outputs = [f"--report={tmp_path / 'a.html'}", f"--trace={tmp_path / 'a.json'}"]
    assert main(["report", *files, "--format=json", f"--output={tmp_path / 'merged.json'}", *outputs]) == 0
    assert capsys.readouterr().out == ""
    assert [each.index for each in load_run(tmp_path / "merged.json").processes] == [0, 1]
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert "<html" in (tmp_path / "a.html").read_text()
    assert main(["report", str(tmp_path / "merged.json"), "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "jax_cmdbuf.run"


def test_full_shows_everything(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text(run_as_json(report(function("train_nodonate"))))
    assert main(["report", str(path)]) == 0
    assert "(--full)" in capsys.readouterr().out
    assert main(["report", str(path), "--full"]) == 0
    assert "(--full)" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot read"),
        ("", "is no report of a run, or was cut off"),
        ("{}", "is no report of a run: write one with"),
        ("half", "was cut off"),
    ],
)
def test_what_is_no_report_is_one_sentence_and_2(tmp_path, files, capsys, content, text):
    path = tmp_path / "bad.json"
    if content is not None:
        whole = run_as_json(of_process(1))
        path.write_text(whole[: len(whole) // 2] if content == "half" else content)
    output = tmp_path / "merged.json"
    assert main(["report", files[0], str(path), "--format=json", f"--output={output}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("jax-cmdbuf: ")
    assert text in captured.err
    assert captured.err.count("\n") == 1
    assert not output.exists()


def test_one_process_twice(files, capsys):
    assert main(["report", files[0], files[0]]) == 2
    assert "are both of process 0 of 2" in capsys.readouterr().err


DISTRIBUTED = (
    """
import sys
import jax
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", num_processes=2, process_id=int(sys.argv[2]))
"""
    + TWO_GEMM
    + """
from jax.sharding import NamedSharding, PartitionSpec
everywhere = NamedSharding(jax.make_mesh((4,), ("x",)), PartitionSpec())
a, b, c = [
    jax.make_array_from_callback((128, 128), everywhere, lambda index, n=n: matrix(n)[index])
    for n in (1, 2, 3)
]
for _ in range(6):
    result = multiply(a, b, c)
print(jax.process_index(), result.addressable_data(0)[0, 0])
"""
)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_two_processes_of_jax_distributed(tmp_path, capsys):
    (tmp_path / "train.py").write_text(DISTRIBUTED)
    port = free_port()
    options = ("--update-mode=SKIP_PROFILED", "--format=json", "--output=run.json", "--trace=trace.json")
    flags = "--xla_force_host_platform_device_count=2"
    processes = [
        start("run", *options, "train.py", port, index, folder=tmp_path, XLA_FLAGS=flags) for index in (0, 1)
    ]
    try:
        ended = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], ended
    paths = sorted(str(path) for path in tmp_path.glob("run*.json"))
    assert [path.rpartition("/")[2] for path in paths] == ["run.process0.json", "run.process1.json"]
    assert (tmp_path / "trace.process1.json").exists()
    assert main(["report", *paths]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "process 1 of 2" in out
    merged = [each for path in paths for each in load_run(path).functions]
    assert [(each.process, each.phase, each.persistent) for each in merged] == [
        (process, "active", (1, 2, 3, 10)) for process in (0, 0, 1, 1)
    ]
    devices = [each.device for each in merged]
    assert len(set(devices)) == 4
    assert (
        f"on devices {devices[0]}, {devices[1]} of process 0 and devices {devices[2]}, {devices[3]} of "
        "process 1" in out
    )
