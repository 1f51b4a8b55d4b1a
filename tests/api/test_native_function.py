"""Calls of a natively running function: nothing of JAX changes, and each execution is counted once."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.native_function import NativeFunction
from jax_cmdbuf.api.xla_runtime import XlaRuntime
from tests.api.native_programs import attach, native_runtime, only, x


@pytest.fixture
def runtime() -> XlaRuntime:
    return native_runtime()


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
