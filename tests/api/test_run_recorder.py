"""Both runtimes are watched, and what they do is as without."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.observation import simulation
from jax_cmdbuf.api.run_recorder import RunRecorder
from jax_cmdbuf.api.xla_runtime import XlaRuntime, xla_runtime
from tests.api.native_programs import pretend
from tests.api.simulated_programs import feedback, kinds, matrix, program_of, two_gemm
from xla_flags.options import CommandBufferUpdateMode


@pytest.fixture
def recorder() -> Iterator[RunRecorder]:
    made = RunRecorder()
    yield made
    made.stop()
    made.close()


def test_simulated_calls_are_noted(recorder: RunRecorder) -> None:
    function, a, b = two_gemm(), matrix(), matrix(2)
    for _ in range(5):
        result = function(a, b, np.ones((128, 128), np.float32))
    np.testing.assert_array_equal(
        result, jax.jit(lambda a, b, c: (a @ b) @ c)(a, b, np.ones((128, 128), "f"))
    )
    program = program_of(function)
    assert program in recorder.simulation.programs
    notes = recorder.simulation.notes(program)
    uses = notes.uses()
    assert (notes.count, len(notes.times)) == (5, 5)
    assert (uses["a"].kept, uses["c"].host, uses["c"].kind) == (4, 5, "numpy.ndarray")
    assert all(took > 0 for _, took in notes.times)
    assert kinds(program)[3][0] == "transition_active"


def test_donation_and_what_comes_back(recorder: RunRecorder) -> None:
    function, weights, h = feedback(), [matrix(n) for n in range(8)], matrix()
    for _ in range(4):
        h = function(weights, h)
    use = recorder.simulation.notes(program_of(function)).uses()["h"]
    assert (use.donated, use.fed_back, use.result) == (True, 3, "h")


def test_progress_says_what_is_going_on(recorder: RunRecorder) -> None:
    assert recorder.progress() == "no observed call yet"
    recorder.simulation.planning = "step"
    assert recorder.progress() == "planning step"
    recorder.simulation.planning = ""
    function, a = two_gemm(), matrix()
    texts = []
    for _ in range(4):
        function(a, a * 2, a * 3)
        texts.append(recorder.progress())
    assert texts[0] == "1 calls, multiply: profiling"
    assert re.fullmatch(r"4 calls, multiply: active, \d allocations persistent", texts[3])


def test_warnings_are_kept_once(recorder: RunRecorder, caplog: pytest.LogCaptureFixture) -> None:
    function = command_buffer(lambda x: x + 1, plan=b"no plan", runtime="simulated")
    for _ in range(3):
        function(jnp.ones(3))
    (note,) = recorder.notes
    assert "runs, but is not simulated" in note
    recorder.stop()
    logging.getLogger("jax_cmdbuf").warning("later")
    assert len(recorder.notes) == 1


def test_times_become_times_of_day(recorder: RunRecorder) -> None:
    day, moment = recorder.clock
    assert recorder.epoch_us(moment + 3000) == pytest.approx(day / 1000 + 3)


def test_stopped_it_is_in_nobody_s_way(recorder: RunRecorder) -> None:
    assert simulation().runtime is recorder.simulation
    recorder.stop()
    assert simulation().runtime is not recorder.simulation
    function = two_gemm()
    function(matrix(), matrix(), matrix())
    assert recorder.simulation.programs == ()


def test_asking_for_the_runtime_starts_no_backend(run_python: Any) -> None:
    code = """
from jax_cmdbuf import _jax
from jax_cmdbuf.api.run_recorder import RunRecorder
recorder = RunRecorder()
recorder.progress()
assert recorder.xla.observed() == ()
recorder.stop()
assert not _jax.backends_started()
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def native(recorder: RunRecorder, monkeypatch: pytest.MonkeyPatch) -> RunRecorder:
    """XLA's runtime, on a CPU that passes for a GPU."""
    mode = CommandBufferUpdateMode.SKIP_PROFILED
    client = NativeClient("gpu", "test", frozenset({"SKIP_PROFILED"}), mode, "vmm")
    monkeypatch.setattr(recorder.xla, "_runtime", XlaRuntime(client, pretend))
    return recorder


def test_native_calls_are_noted_by_function(native: RunRecorder) -> None:
    assert xla_runtime() is native.xla  # type: ignore[comparison-overlap]
    function = command_buffer(lambda w, x: w + x, update_mode="SKIP_PROFILED", runtime="xla")
    state = jnp.ones(8)
    for _ in range(5):
        state = function(state, 1.0)
    assert state.tolist() == [6.0] * 8
    notes = native.xla.notes("<lambda>")
    uses = notes.uses()
    assert (notes.count, native.xla.calls) == (5, 5)
    assert (uses["w"].fed_back, uses["w"].result, uses["x"].kind) == (4, "result[0]", "float")
    (profile,) = native.xla.observed()
    assert profile.snapshot.executions == 5
    assert xla_runtime().snapshots() == (profile.snapshot,)
    assert native.progress() == "5 calls"
    assert function.update_mode_status.is_effective


def test_native_calls_inside_a_trace_are_not(native: RunRecorder) -> None:
    function = command_buffer(lambda x: x + 1, update_mode="SKIP_PROFILED", runtime="xla")
    assert jax.jit(lambda x: function(x) * 2)(1.0) == 4
    assert jax.grad(function)(1.0) == 1
    assert native.xla.calls == 0


def test_native_errors_are_the_function_s(native: RunRecorder) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        command_buffer(fail, runtime="xla")(1.0)


def test_native_functions_that_are_not_observed(native: RunRecorder) -> None:
    function = command_buffer(lambda x: x + 1, runtime="xla", observe=False)
    assert function(1.0) == 2
    assert native.xla.calls == 0
