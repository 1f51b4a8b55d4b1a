"""``runtime="cuda_graph"`` on a GPU: bit for bit XLA's values through profile, transition and remapping.

One process for each way to choose the allocator, because XLA reads its settings once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jax_cmdbuf.api.graph_program import NOT_VMM
from tests.gpu.cuda_graph_loops import EXECUTIONS, FALLBACKS, LOOPS

pytestmark = pytest.mark.gpu

MODES = ("ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED")
# Measuring kernels would take most of the time.
COMMON = "--xla_gpu_autotune_level=0"
SETTINGS = {
    "vmm": {"XLA_FLAGS": COMMON, "XLA_PYTHON_CLIENT_ALLOCATOR": "vmm"},
    "process": {"XLA_FLAGS": f"{COMMON} --xla_gpu_command_buffer_update_mode=SKIP_PROFILED"},
    "default": {"XLA_FLAGS": COMMON},
    "platform": {"XLA_FLAGS": COMMON, "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
}
VMM = ("vmm", "process")
PROFILED = 3


@cache
def report(setting: str) -> dict[str, Any]:
    inherited = {name: value for name, value in os.environ.items() if name != "XLA_PYTHON_CLIENT_ALLOCATOR"}
    environ = {
        **inherited,
        **SETTINGS[setting],
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    script = Path(__file__).with_name("cuda_graph_loops.py")
    done = subprocess.run(
        [sys.executable, str(script), *(MODES if setting == "vmm" else MODES[-1:])],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
    found: dict[str, Any] = json.loads(line.removeprefix("report: "))
    assert found["platform"] == "gpu"
    return found


def loop_of(setting: str, name: str, mode: str) -> dict[str, Any]:
    loop: dict[str, Any] = report(setting)["loops"][f"{name}-{mode}"]
    return loop


def total(loop: dict[str, Any], kind: str) -> int:
    return sum(each.get(kind, 0) for each in loop["events"])


CASES = [(setting, mode) for setting in SETTINGS for mode in (MODES if setting == "vmm" else MODES[-1:])]


@pytest.mark.parametrize(("setting", "mode"), CASES)
@pytest.mark.parametrize("name", LOOPS)
def test_every_execution_has_xlas_bits(setting: str, mode: str, name: str) -> None:
    loop = loop_of(setting, name, mode)
    assert loop["differing"] == []
    if name in FALLBACKS:
        assert loop["native_reason"] == loop["status"][2] != ""
        assert ("only XLA can run kFft" in loop["native_reason"]) == (name == "spectrum")
        assert loop["runs"] == 0
    else:
        assert (loop["native_reason"], loop["runs"]) == ("", EXECUTIONS)


@pytest.mark.parametrize("setting", VMM)
def test_two_gemms_are_profiled_and_remapped_once(setting: str) -> None:
    loop = loop_of(setting, "two_gemm", "SKIP_PROFILED")
    events = loop["events"]
    for execution in events[:PROFILED]:
        assert execution["profile_step"] == 1
        assert "record_create" not in execution
    assert {"transition_active", "reserve", "execute_remapped", "record_create"} <= events[PROFILED].keys()
    for execution in events[PROFILED + 1 :]:
        assert execution["execute_remapped"] == execution["execute_command_buffer"] == 1
        # Only the result may be elsewhere: where it lies is XLA's choice.
        assert execution.keys() <= {
            "execute_remapped",
            "execute_command_buffer",
            "update_begin",
            "update_done",
        }
    assert total(loop, "transition_active") == total(loop, "reserve") == 1
    assert loop["phases"] == ["active"]
    assert loop["demotions"] == []
    assert loop["selected"][0] >= 4
    assert loop["status"] == ["SKIP_PROFILED", "SKIP_PROFILED", ""]


def test_skip_temp_remaps_from_the_first_execution_and_always_update_never() -> None:
    first = loop_of("vmm", "two_gemm", "SKIP_TEMP")["events"][0]
    assert {"reserve", "execute_remapped", "record_create"} <= first.keys()
    always = loop_of("vmm", "rotating", "ALWAYS_UPDATE")
    assert total(always, "reserve") == total(always, "profile_step") == 0
    assert total(always, "update_done") > 0
    assert total(always, "execute_command_buffer") >= EXECUTIONS


@pytest.mark.parametrize("setting", ["default", "platform"])
def test_without_the_vmm_allocator_nothing_is_reserved_and_the_reason_is_told(setting: str) -> None:
    for name in set(LOOPS) - set(FALLBACKS):
        loop = loop_of(setting, name, "SKIP_PROFILED")
        assert total(loop, "reserve") == total(loop, "profile_step") == 0
        assert loop["remapping_reason"] == NOT_VMM
        assert loop["status"] == ["SKIP_PROFILED", "ALWAYS_UPDATE", NOT_VMM]


@pytest.mark.parametrize(("setting", "mode"), CASES)
@pytest.mark.parametrize("name", ["training", "feedback_donated"])
def test_donated_arguments_become_results_without_a_copy(setting: str, mode: str, name: str) -> None:
    assert all(loop_of(setting, name, mode)["in_place"])


@pytest.mark.parametrize("setting", VMM)
def test_one_buffer_for_two_selected_arguments_is_demoted_and_runs(setting: str) -> None:
    loop = loop_of(setting, "shared_late", "SKIP_PROFILED")
    assert total(loop, "transition_active") == 1
    assert any("ALREADY_EXISTS" in reason for reason in loop["demotions"])


@pytest.mark.parametrize(("setting", "mode"), CASES)
def test_results_are_freed_whoever_drops_them(setting: str, mode: str) -> None:
    assert report(setting)["leaks"][mode] <= 4 << 20


@pytest.mark.parametrize(("setting", "mode"), CASES)
def test_other_transformations_take_the_function_as_jax_made_it(setting: str, mode: str) -> None:
    assert all(report(setting)["nested"][mode].values())


@pytest.mark.parametrize("setting", SETTINGS)
def test_functions_that_are_gone_are_forgotten(setting: str) -> None:
    assert report(setting)["left"] == []
