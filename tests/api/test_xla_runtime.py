"""Functions of the native runtime: their modes, their lives, and the decorator in front of them."""

from __future__ import annotations

import functools
import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.decorator import CommandBufferFunction, command_buffer
from jax_cmdbuf.api.flag_guard import UPDATE_MODE_FLAG
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.xla_runtime import XlaRuntime, set_xla_runtime, xla_runtime
from tests.api.native_programs import MODES, attach, decorated, native_runtime, only, pretend, x
from xla_flags.options import CommandBufferUpdateMode


@pytest.fixture
def runtime() -> XlaRuntime:
    return native_runtime()


def step(state: Any, batch: Any) -> Any:
    return {"w": state["w"] + batch.sum(), "n": state["n"] + 1}, (batch * 2).sum()


def test_a_loop_is_profiled_like_xla_does(runtime: XlaRuntime) -> None:
    call = attach(runtime, step)
    plain = jax.jit(step)
    batch, state, same = x(), {"w": x(), "n": jnp.ones(())}, {"w": x(), "n": jnp.ones(())}
    held = []
    for number in range(6):
        if number == 3:
            assert only(runtime).snapshot.phase == "profiling"
        state, loss = call(state, batch)
        same, expected = plain(same, batch)
        held.append((state, loss))
        np.testing.assert_array_equal(state["w"], same["w"])
        assert loss == expected
    profile = only(runtime)
    snapshot = profile.snapshot
    assert (profile.function, snapshot.module, snapshot.mode) == ("step", "jit_pretended", "SKIP_PROFILED")
    assert (snapshot.phase, snapshot.steps, snapshot.executions, snapshot.failures) == ("active", 3, 6, 0)
    states = {each.path: each.state for each in snapshot.allocations}
    assert states["batch"] == "remapped"
    assert states["state['w']"] == states["state['n']"] == states["result[0]"] == "rejected"
    assert profile.compared == 3
    moves = {each.path: profile.moves.get(each.allocation) for each in snapshot.allocations}
    assert moves["batch"] == 0
    assert moves["state['w']"] == moves["result[2]"] == 3
    assert runtime.snapshots() == (snapshot,)
    assert runtime.registry.export_json().count('"phase": "active"') == 1


@pytest.mark.parametrize("observe", [True, False])
def test_xlas_mode_is_a_compiler_option_of_the_function(observe: bool) -> None:
    runtime = native_runtime(vmm=True)
    function = decorated(jax.jit(lambda a: jnp.sin(a) * 2, donate_argnums=0), mode="ALWAYS_UPDATE")
    call = runtime.attach(function, observe)
    assert runtime.status(function).is_effective
    for _ in range(5):
        given = x()
        np.testing.assert_array_equal(call(given), function.jitted(x()))
        assert given.is_deleted()
    if observe:
        assert call.__self__._native._jit_info.compiler_options_kvs == ((UPDATE_MODE_FLAG, "ALWAYS_UPDATE"),)
    # JAX refuses such a function inside another; there it has to be the one without the option.
    np.testing.assert_array_equal(jax.jit(lambda a: call(a) + 1)(x()), jnp.sin(x()) * 2 + 1)
    np.testing.assert_array_equal(jax.vmap(call)(jnp.stack([x(), x()]))[1], jnp.sin(x()) * 2)
    np.testing.assert_allclose(jax.grad(lambda a: call(a).sum())(x()), jnp.cos(x()) * 2)
    inside = jax.jit(lambda: call(np.ones(3, np.float32)))  # nothing that is passed in tells of the trace
    np.testing.assert_allclose(inside(), jnp.sin(jnp.ones(3)) * 2)
    if observe:
        assert only(runtime).snapshot.executions == 5


def test_the_process_s_mode_leaves_the_function_alone(runtime: XlaRuntime) -> None:
    function = decorated(lambda a: a + 1)
    assert runtime.attach(function, observe=False) is function.jitted
    assert attach(runtime, function).__self__._native is function.jitted


def test_a_mode_without_effect_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    runtime = XlaRuntime(
        NativeClient("gpu", "test", MODES, CommandBufferUpdateMode.ALWAYS_UPDATE, "default"), pretend
    )
    for _ in range(3):
        function = decorated(lambda a: a)
        call = runtime.attach(function)
        assert float(call(2.0)) == 2
    assert len(caplog.messages) == 1
    assert "SKIP_PROFILED requested, ALWAYS_UPDATE effective" in caplog.messages[0]
    assert runtime.status(function).effective == "ALWAYS_UPDATE"
    assert all(profile.update_mode == runtime.status(function) for profile in runtime.observed())


def test_a_function_that_dies_leaves_its_report_only(runtime: XlaRuntime) -> None:
    closed_over = x()

    def use(executions: int) -> weakref.ref[Any]:
        def short_lived(a):
            return a + closed_over

        call = attach(runtime, short_lived)
        for _ in range(executions):
            call(x())
        return weakref.ref(short_lived)

    gone = [use(executions) for executions in (1, 2, 3, 5)]
    gc.collect()
    assert [each() for each in gone] == [None] * 4
    found = [
        (p.snapshot.executions, p.snapshot.phase, bool(p.snapshot.allocations)) for p in runtime.observed()
    ]
    assert found == [
        (1, "profiling", False),
        (2, "profiling", False),
        (3, "profiling", True),
        (5, "active", True),
    ]
    assert {profile.function for profile in runtime.observed()} == {"short_lived"}
    assert runtime.registry.snapshots() == ()


def test_functions_may_die_while_they_run(runtime: XlaRuntime) -> None:
    def work() -> None:
        for number in range(20):
            call = attach(runtime, lambda a, n=number: a * n)
            results = [call(x()) for _ in range(4)]
            del call
            if number % 5 == 0:
                gc.collect()
            jax.block_until_ready(results)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    profiles = runtime.observed()
    assert sum(profile.snapshot.executions for profile in profiles) == 4 * 20 * 4


@pytest.fixture
def installed(runtime: XlaRuntime) -> Iterator[XlaRuntime]:
    set_xla_runtime(runtime)
    yield runtime
    set_xla_runtime(None)


def test_the_decorator_hands_its_calls_over_at_the_first(installed: XlaRuntime) -> None:
    function = decorated(lambda a: a + 1, runtime="xla")
    ready = threading.Barrier(50)
    results: list[Any] = []

    def work() -> None:
        ready.wait()
        results.append(function(x()).tolist())

    threads = [threading.Thread(target=work) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[1, 2, 3, 4]] * 50
    assert only(installed).snapshot.executions == 50
    assert function.update_mode_status.is_effective
    assert function.lower(x()).as_text().startswith("module @jit__lambda")
    assert isinstance(function, CommandBufferFunction)


def test_a_method_is_decorated_like_a_function(installed: XlaRuntime) -> None:
    class Model:
        factor = 3

        @functools.partial(command_buffer, runtime="xla", static_argnums=0)
        def apply(self, a: Any) -> Any:
            return a * self.factor

    model = Model()
    for _ in range(3):
        assert model.apply(x()).tolist() == [0, 3, 6, 9]
    assert Model.apply(model, 2) == 6
    assert [profile.snapshot.executions for profile in installed.observed()] == [3, 1]


def test_unobserved_functions_are_called_directly(installed: XlaRuntime) -> None:
    function = decorated(lambda a: a + 1, runtime="xla", observe=False)
    assert function(1) == 2
    assert function._native is function.jitted
    assert installed.observed() == ()


def test_what_jax_jit_did_not_make_is_called_as_it_is(
    runtime: XlaRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    class OtherJit:
        __name__ = "other"
        lower = trace = None

        def __call__(self, a: Any) -> Any:
            return a + 1

    caplog.set_level(logging.WARNING)
    function = decorated(OtherJit())
    call = runtime.attach(function)
    assert call(1) == 2
    assert runtime.observed() == ()


def test_on_a_cpu_there_is_nothing_to_profile(caplog: pytest.LogCaptureFixture) -> None:
    runtime = XlaRuntime()
    call = attach(runtime, lambda a: a + 1)
    for _ in range(5):
        call(x())
    profile = only(runtime)
    assert profile.snapshot.executions == 5
    assert profile.update_mode.effective == "none"
    assert profile.problem
    assert len(caplog.messages) == 2
    assert xla_runtime() is xla_runtime()
