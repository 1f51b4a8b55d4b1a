"""The native runtime on the CPU: XLA runs the function, and a made-up executable stands for the GPU's."""

from __future__ import annotations

import functools
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.decorator import CommandBufferFunction, command_buffer
from jax_cmdbuf.api.flag_guard import UPDATE_MODE_FLAG
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.native_profile import ObservedProfile
from jax_cmdbuf.api.xla_runtime import NativeFunction, XlaRuntime, xla_runtime
from tests.api.native_programs import pretend
from xla_flags.options import CommandBufferUpdateMode

ALWAYS, PROFILED = (CommandBufferUpdateMode(name) for name in ("ALWAYS_UPDATE", "SKIP_PROFILED"))
MODES = frozenset({"ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED"})


def runtime_with(
    process: CommandBufferUpdateMode = PROFILED, read: Callable[[Any], Any] = pretend
) -> XlaRuntime:
    return XlaRuntime(NativeClient("gpu", "test", MODES, process, "vmm"), read)


@pytest.fixture
def runtime() -> XlaRuntime:
    runtime = runtime_with()
    # A CPU's buffers lie anywhere.
    runtime._allocator._is_vmm = False
    return runtime


def decorated(function: Any, mode: str = "SKIP_PROFILED", **options: Any) -> CommandBufferFunction[..., Any]:
    return command_buffer(function, update_mode=mode, **options)


def attach(runtime: XlaRuntime, function: Any, **options: Any) -> Any:
    return runtime.attach(decorated(function, **options))


def only(runtime: XlaRuntime) -> ObservedProfile:
    (profile,) = runtime.observed()
    return profile


def x(size: int = 4) -> jax.Array:
    return jnp.arange(size, dtype=jnp.float32)


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


def test_what_jit_does_stays(runtime: XlaRuntime) -> None:
    def function(a, scale, *, how, b=None):
        return a * scale if how == "mul" else a + scale, b

    jitted = jax.jit(function, static_argnums=1, static_argnames="how", donate_argnums=0)
    call = attach(runtime, jitted)
    assert isinstance(call.__self__, NativeFunction)
    for number in range(5):
        given = x()
        result, none = call(given, 3, how="mul")
        assert given.is_deleted()
        assert none is None
        np.testing.assert_array_equal(result, [0, 3, 6, 9])
        kept, also = call(x(), 3, how="add", b=np.float32(number))
        np.testing.assert_array_equal(kept, [3, 4, 5, 6])
        assert also == number
        assert call(2, 3, how="mul")[0].weak_type
    assert jitted._cache_size() == 3  # the same function, its compilations and nothing else
    assert sorted(profile.snapshot.executions for profile in runtime.observed()) == [5, 5, 5]


@pytest.mark.parametrize("observe", [True, False])
def test_xlas_mode_is_a_compiler_option_of_the_function(observe: bool) -> None:
    runtime = runtime_with()
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
    runtime = XlaRuntime(NativeClient("gpu", "test", MODES, ALWAYS, "default"), pretend)
    for _ in range(3):
        function = decorated(lambda a: a)
        call = runtime.attach(function)
        assert float(call(2.0)) == 2
    assert len(caplog.messages) == 1
    assert "SKIP_PROFILED requested, ALWAYS_UPDATE effective" in caplog.messages[0]
    assert runtime.status(function).effective == "ALWAYS_UPDATE"
    assert all(profile.update_mode == runtime.status(function) for profile in runtime.observed())


def test_each_executable_has_its_profile(runtime: XlaRuntime) -> None:
    call = attach(runtime, lambda a, b: a + b.sum())
    weight = x()
    for _ in range(5):
        for size in (2, 3, 3):
            call(weight, x(size))
    executions = sorted((p.snapshot.executions, p.snapshot.phase) for p in runtime.observed())
    assert executions == [(5, "active"), (10, "active")]


def test_host_values_share_the_executable_with_arrays(runtime: XlaRuntime) -> None:
    call = attach(runtime, lambda a: a + 1)
    state: Any = np.zeros(4, np.float32)
    for _ in range(6):
        state = call(state)
    profile = only(runtime)
    assert profile.snapshot.executions == 6
    assert call.__self__._signatures.only is not None
    (argument,) = (each for each in profile.snapshot.allocations if each.path == "a")
    assert argument.reason == "it was never observed"  # not the first time


def test_clearing_jaxs_cache_begins_anew(runtime: XlaRuntime) -> None:
    function = jax.jit(lambda a: a + 1)
    call = attach(runtime, function)
    for _ in range(5):
        call(x())
    function.clear_cache()
    for _ in range(2):
        call(x())
    assert [profile.snapshot.executions for profile in runtime.observed()] == [5, 2]
    assert len(call.__self__._executables) == 1


def test_jit_switched_off_is_no_execution(runtime: XlaRuntime) -> None:
    call = attach(runtime, lambda a: a + 1)
    call(x())
    with jax.disable_jit():
        call(x())
    assert only(runtime).snapshot.executions == 1


def test_errors_are_the_users(runtime: XlaRuntime) -> None:
    @functools.partial(attach, runtime)
    def function(a, n):
        if n.shape == (7,):
            raise KeyboardInterrupt
        return a + jax.pure_callback(fail_if_negative, jax.ShapeDtypeStruct((), jnp.float32), n)

    def fail_if_negative(n: Any) -> Any:
        if n < 0:
            raise RuntimeError("negative")
        return np.float32(n)

    good, bad = jnp.float32(1), jnp.float32(-1)
    for number in range(6):
        jax.block_until_ready(function(x(), good))
        with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="negative"):
            jax.block_until_ready(function(x(), bad))
        with pytest.raises(TypeError):
            function(x())
        with pytest.raises(TypeError):
            function("text", good)
        with pytest.raises(ValueError, match="Comparator"):
            function({1: x(), "a": x()}, good)
        with pytest.raises(KeyboardInterrupt):
            function(x(), jnp.ones(7))
        deleted = x()
        deleted.delete()
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            function(deleted, good)
        assert only(runtime).snapshot.failures >= number
    assert only(runtime).snapshot.phase == "active"


def test_no_array_outlives_its_user(runtime: XlaRuntime) -> None:
    call = attach(runtime, lambda a, b: (a + b, b * 2))
    for _ in range(5):
        given, result = [x(), x()], None
        result = call(*given)
        seen = [weakref.ref(each) for each in (*given, *result)]
        given.clear()
        del result
        gc.collect()
        assert [each() for each in seen] == [None] * 4


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


def test_a_hundred_threads(runtime: XlaRuntime) -> None:
    functions = [attach(runtime, lambda a, b, k=k: a * k + b.sum()) for k in range(3)]
    ready = threading.Barrier(100)
    wrong: list[Any] = []

    def work(number: int) -> None:
        ready.wait()
        for turn in range(30):
            k, size = turn % 3, 2 + (number + turn) % 2
            result = functions[k](x(), x(size))
            if not np.array_equal(result, np.arange(4) * k + sum(range(size))):
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    profiles = runtime.observed()
    assert len(profiles) == 6
    assert {profile.snapshot.phase for profile in profiles} == {"active"}
    assert sum(profile.snapshot.executions for profile in profiles) == 3000


def test_a_finalizer_may_call_the_function(runtime: XlaRuntime) -> None:
    call = attach(runtime, lambda a: a + 1)

    class Caller:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            call(np.float32(1))

    for _ in range(200):
        Caller()
        call(np.float32(1))
    gc.collect()
    assert only(runtime).snapshot.executions == 400


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


def test_each_device_of_a_sharded_function_has_a_profile(run_python: Any) -> None:
    code = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.xla_runtime import XlaRuntime
from tests.api.native_programs import pretend
from xla_flags.options import CommandBufferUpdateMode

mode = CommandBufferUpdateMode.SKIP_PROFILED
runtime = XlaRuntime(NativeClient("gpu", "test", frozenset({"SKIP_PROFILED"}), mode, "vmm"), pretend)
runtime._allocator._is_vmm = False
mesh = jax.make_mesh((4,), ("x",))
batch = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("x")))
weight = jax.device_put(jnp.arange(3.0), NamedSharding(mesh, P()))
scale = jnp.ones(())  # on one device; JAX copies it to the others
function = jax.jit(lambda w, b, s: (w + b.sum() * s, b * 2))
call = runtime.attach(command_buffer(function, update_mode="SKIP_PROFILED"))
held = []
for _ in range(6):
    held.append(call(weight, batch, scale))
    np.testing.assert_array_equal(held[-1][0], function(weight, batch, scale)[0])
profiles = runtime.observed()
assert [profile.snapshot.device for profile in profiles] == [0, 1, 2, 3]
for profile in profiles:
    states = {each.path: (each.state, each.reason) for each in profile.snapshot.allocations}
    assert states["w"][0] == states["b"][0] == "remapped", states
    assert states["s"] == ("rejected", "it was never observed"), states
    assert states["result[0]"][0] == states["result[1]"][0] == "rejected", states
assert [profile.compared for profile in profiles] == [3, 0, 0, 0]
"""
    done = run_python(code, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr
