"""A recorded run as a report: signatures, devices, and native profiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest

from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.run_collect import collect_run
from jax_cmdbuf.api.run_ending import Ending
from jax_cmdbuf.api.run_recorder import RunRecorder
from jax_cmdbuf.api.xla_runtime import XlaRuntime
from jax_cmdbuf.report.run_json import read_run, run_as_json
from tests.api.native_programs import pretend
from tests.api.simulated_programs import feedback, matrix, two_gemm
from xla_flags.options import CommandBufferUpdateMode

ENDING = Ending(("a.py",), "finished", "", 0, 5.0, 7.0)


@pytest.fixture
def recorder() -> Iterator[RunRecorder]:
    made = RunRecorder()
    yield made
    made.stop()
    made.close()


def test_the_process_and_its_devices(recorder: RunRecorder) -> None:
    jnp.ones(3).block_until_ready()
    (process,) = collect_run(recorder, ENDING).processes
    assert (process.index, process.count, process.platform) == (0, 1, "cpu")
    assert [each.kind for each in process.devices] == ["cpu"]
    assert {"jax", "jaxlib"} <= process.versions.keys()
    assert (process.command, process.outcome, process.took_us) == (("a.py",), "finished", 7.0)


def test_a_simulated_function(recorder: RunRecorder) -> None:
    function, a, b, c = two_gemm(target="h100"), matrix(), matrix(2), matrix(3)
    for _ in range(6):
        function(a, b, c)
    report = collect_run(recorder, ENDING)
    (made,) = report.functions
    assert (made.function, made.signature, made.device, made.runtime) == ("multiply", 0, 0, "simulated")
    assert (made.target, made.requested, made.effective) == ("h100", "SKIP_PROFILED", "SKIP_PROFILED")
    assert made.arguments == ("a f32[128,128]", "b f32[128,128]", "c f32[128,128]")
    assert (made.phase, made.calls, len(made.executions)) == ("active", 6, 6)
    assert all(each.began_us > 0 for each in made.executions)
    rows = {each.path: each for each in made.allocations}
    assert rows["a"].state == "remapped"
    assert rows["a"].use is not None
    assert rows["a"].use.kept == 5
    assert read_run(run_as_json(report), "here") == report


def test_signatures_of_one_function_are_numbered(recorder: RunRecorder) -> None:
    first, second = two_gemm(), two_gemm()
    for function in (first, second, first):
        function(matrix(), matrix(), matrix())
    labels = [(each.label, each.calls) for each in collect_run(recorder, ENDING).functions]
    assert labels == [("multiply", 2), ("multiply (signature 1)", 1)]


def test_a_donated_state_needs_no_advice(recorder: RunRecorder) -> None:
    function, weights, h = feedback(), [matrix(n) for n in range(8)], matrix()
    for _ in range(6):
        h = function(weights, h)
    (made,) = collect_run(recorder, ENDING).functions
    assert made.advice == ()
    assert made.updated_per_step == 0


def test_four_devices_have_four_profiles(run_python: Any) -> None:
    code = """
import json
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from jax_cmdbuf.api.run_collect import collect_run
from jax_cmdbuf.api.run_recorder import RunRecorder
from tests.api.test_run_collect import ENDING
from tests.api.simulated_programs import matrix, two_gemm
recorder = RunRecorder()
mesh = jax.make_mesh((4,), ("x",))
everywhere = [jax.device_put(matrix(n), NamedSharding(mesh, P())) for n in (1, 2, 3)]
function = two_gemm()
for _ in range(6):
    function(*everywhere)
report = collect_run(recorder, ENDING)
print(json.dumps([(each.device, each.phase, each.persistent, each.calls) for each in report.functions]))
print(len(report.processes[0].devices))
"""
    done = run_python(code, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr
    profiles, devices = done.stdout.splitlines()
    found = json.loads(profiles)
    assert [each[0] for each in found] == [0, 1, 2, 3]
    assert {(phase, tuple(persistent), calls) for _, phase, persistent, calls in found} == {
        ("active", (1, 2, 3, 10), 6)
    }
    assert devices == "4"


def test_a_native_function(recorder: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    always = CommandBufferUpdateMode.ALWAYS_UPDATE
    client = NativeClient("gpu", "test", frozenset({"SKIP_PROFILED"}), always, "default")
    monkeypatch.setattr(recorder.xla, "_runtime", XlaRuntime(client, pretend))
    function = command_buffer(lambda w, x: w + x, update_mode="SKIP_PROFILED", runtime="xla")
    state = jnp.ones(8)
    for _ in range(9):
        state = function(state, 1.0)
    report = collect_run(recorder, ENDING)
    (made,) = report.functions
    assert (made.runtime, made.target, made.calls, made.commands) == ("xla", "cpu", 9, None)
    assert (made.requested, made.effective) == ("SKIP_PROFILED", "ALWAYS_UPDATE")
    assert made.hazards[0].kind == "mode"
    assert len(made.executions) == 9
    assert read_run(run_as_json(report), "here") == report
