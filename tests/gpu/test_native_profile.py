"""XLA's own SKIP_PROFILED on a GPU: what our profile observed, what XLA logged, what a probe saw inside.

One process for each way to choose the allocator, because XLA reads its settings once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gpu.native_loops import EXECUTIONS, LOOPS

pytestmark = pytest.mark.gpu

MODE_FLAG = "--xla_gpu_command_buffer_update_mode"
# Small programs must become command buffers too; measuring kernels would take most of the time.
COMMON = "--xla_gpu_graph_min_graph_size=1 --xla_gpu_autotune_level=0"
SETTINGS = {
    "process": {"XLA_FLAGS": f"{MODE_FLAG}=SKIP_PROFILED {COMMON}"},
    "function": {"XLA_FLAGS": COMMON, "XLA_PYTHON_CLIENT_ALLOCATOR": "vmm"},
    "default": {"XLA_FLAGS": COMMON},
}
EFFECTIVE = ["process", "function"]
PROFILED = 3

# XLA's messages (VLOG of gpu_executable_va_remap_allocator.cc).
STEP = re.compile(r"VA remapping: module (\S+) profiling execution (\d+) of (\d+)")
ACTIVE = re.compile(
    r"VA remapping: module (\S+) profile selected a remapping set with (\d+) automatically .* and (\d+) of "
    r"(\d+) profiled command buffer allocation\(s\) after (\d+) profiling execution"
)
DISABLED = re.compile(r"VA remapping: module (\S+) profile found no stable command buffer allocations")
NOT_VMM = re.compile(r"VA remapping: module (\S+) parameter allocation (\d+) at \S+ is not an exact VMM")
SHARED = re.compile(r"VA remapping: module (\S+) parameter allocation (\d+) shares its buffer")


class Run(NamedTuple):
    report: dict[str, Any]
    log: str


@cache
def run(setting: str, mode: str = "SKIP_PROFILED") -> Run:
    inherited = {name: value for name, value in os.environ.items() if name != "XLA_PYTHON_CLIENT_ALLOCATOR"}
    environ = {
        **inherited,
        **SETTINGS[setting],
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": "gpu_executable_va_remap_allocator=5",
    }
    script = Path(__file__).with_name("native_loops.py")
    done = subprocess.run(
        [sys.executable, str(script), mode],
        env=environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
    report = json.loads(line.removeprefix("report: "))
    assert report["platform"] == "gpu"
    return Run(report, done.stderr)


def loop_of(setting: str, name: str, mode: str = "SKIP_PROFILED") -> dict[str, Any]:
    loop: dict[str, Any] = run(setting, mode).report["loops"][name]
    return loop


def logged(pattern: re.Pattern[str], setting: str, name: str) -> list[tuple[int, ...]]:
    """The numbers of XLA's messages about a loop's module."""
    found = pattern.findall(run(setting).log)
    rows = [row if isinstance(row, tuple) else (row,) for row in found]
    return [tuple(map(int, row[1:])) for row in rows if row[0] == f"jit_{name}"]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", LOOPS)
def test_values_are_those_of_the_undecorated_function(setting: str, name: str) -> None:
    assert loop_of(setting, name)["same"]


@pytest.mark.parametrize("setting", EFFECTIVE)
@pytest.mark.parametrize("name", LOOPS)
def test_the_observed_profile_is_what_xla_logged(setting: str, name: str) -> None:
    loop = loop_of(setting, name)
    profile = loop["profile"]
    assert loop["problem"] == ""
    assert profile["executions"] == EXECUTIONS
    assert logged(STEP, setting, name) == [(step, PROFILED) for step in range(1, PROFILED + 1)]
    assert (profile["steps"], profile["limit"]) == (PROFILED, PROFILED)
    rows = profile["allocations"]
    candidates = [row for row in rows if row["role"] == "candidate"]
    automatic = [row for row in rows if row["role"] == "remapped"]
    chosen = [row for row in candidates if row["state"] == "remapped"]
    unseen = [row for row in candidates if row["reason"] == "it was never observed"]
    if profile["phase"] == "active":
        ((logged_automatic, selected, count, steps),) = logged(ACTIVE, setting, name)
        assert (logged_automatic, count, steps) == (len(automatic), len(candidates), PROFILED)
        # What a caller cannot see, as where JAX puts a host value, XLA may have found stable.
        assert len(chosen) <= selected <= len(chosen) + len(unseen)
    else:
        assert len(logged(DISABLED, setting, name)) == 1
    assert bool(unseen) == (name == "host_batch")
    for pattern, reason in ((NOT_VMM, "not one that the VMM"), (SHARED, "the same buffer")):
        by_xla = {row[0] for row in logged(pattern, setting, name)}
        assert {row["allocation"] for row in rows if reason in row["reason"]} == by_xla


@pytest.mark.parametrize("setting", EFFECTIVE)
def test_a_probe_sees_the_callers_buffers_and_then_the_reservation(setting: str) -> None:
    loop = loop_of(setting, "probed")
    inside = loop["probed"]
    assert len(inside) == EXECUTIONS
    states = {row["path"]: row["state"] for row in loop["profile"]["allocations"]}
    assert (states["args[0]"], states["args[1]"]) == ("remapped", "remapped")
    reserved = set()
    for number, (addresses, caller) in enumerate(zip(inside, loop["seen"], strict=True)):
        if number < PROFILED:
            assert addresses[:2] == caller["arguments"][:2]
        else:
            assert set(addresses[:2]).isdisjoint(caller["arguments"] + caller["results"])
            reserved.add(tuple(addresses[:2]))
    assert len(reserved) == 1, "a reservation address does not change"


@pytest.mark.parametrize("setting", EFFECTIVE)
def test_what_changes_later_is_counted(setting: str) -> None:
    loop = loop_of(setting, "changing_later")
    assert loop["compared"] == EXECUTIONS - PROFILED
    (row,) = [row for row in loop["profile"]["allocations"] if row["path"] == "args[1]"]
    assert row["state"] == "remapped"
    assert loop["moves"][str(row["allocation"])] == 1


@pytest.mark.parametrize("setting", EFFECTIVE)
@pytest.mark.parametrize("name", LOOPS)
def test_the_mode_is_effective(setting: str, name: str) -> None:
    assert loop_of(setting, name)["status"] == {
        "requested": "SKIP_PROFILED",
        "effective": "SKIP_PROFILED",
        "reason": "",
        "remedy": "",
    }


def test_with_another_allocator_it_says_what_is_missing() -> None:
    for name in LOOPS:
        status = loop_of("default", name)["status"]
        assert (status["requested"], status["effective"]) == ("SKIP_PROFILED", "ALWAYS_UPDATE")
        assert "'default'" in status["reason"]
        assert "XLA_PYTHON_CLIENT_ALLOCATOR=vmm" in status["remedy"]
    log = run("default").log
    assert log.count("SKIP_PROFILED requested, ALWAYS_UPDATE effective") == 1
    assert not STEP.findall(log)
    addresses = loop_of("default", "probed")
    for inside, caller in zip(addresses["probed"], addresses["seen"], strict=True):
        assert inside[:2] == caller["arguments"][:2]


def test_a_function_may_opt_out_of_the_process_s_mode() -> None:
    finished = run("process", "ALWAYS_UPDATE")
    modules = {match[0] for match in STEP.findall(finished.log)}
    assert {f"jit_plain_{name}" for name in LOOPS} <= modules
    assert modules.isdisjoint({f"jit_{name}" for name in LOOPS})
    for name in LOOPS:
        assert loop_of("process", name, "ALWAYS_UPDATE")["status"]["effective"] == "ALWAYS_UPDATE"
        assert loop_of("process", name, "ALWAYS_UPDATE")["same"]
