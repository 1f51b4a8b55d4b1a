from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.ffi import CallFrame, ExecutionStage, FfiHandler, HandlerTraits
from jax_cmdbuf.errors import StatusCode, StatusError

NAMES = itertools.count()


def registered(function: Callable[[CallFrame], object], **options: Any) -> str:
    """The target's name, new for each test: XLA never forgets one."""
    name = f"jax_cmdbuf.test_ffi.{next(NAMES)}"
    FfiHandler(name, function, **options).register()
    return name


def call(
    name: str, *operands: Any, results: Any = (), aliases: dict[int, int] | None = None, **attrs: Any
) -> Any:
    function = jax.ffi.ffi_call(name, results, has_side_effect=True, input_output_aliases=aliases)
    result = jax.jit(lambda *arrays: function(*arrays, **attrs))(*operands)
    jax.block_until_ready(result)
    jax.effects_barrier()
    return result


def test_operands_attributes_and_device_are_read() -> None:
    seen: dict[str, Any] = {}

    def function(frame: CallFrame) -> None:
        seen.update(
            stage=frame.stage,
            arguments=frame.arguments,
            attributes=dict(frame.attributes),
            one=frame.attribute("label"),
            device=frame.device_ordinal,
            run_id=frame.run_id,
        )

    x, y = jnp.ones((2, 3)), jnp.zeros((), jnp.bfloat16)
    attributes = {
        "label": "hé\n'\"",
        "count": np.int64(-3),
        "small": np.uint8(200),
        "rate": np.float32(1.5),
        "yes": True,
        "array": np.arange(3),
        "nested": {"inner": np.int32(1)},
    }
    call(registered(function), x, y, jnp.zeros((0, 4), jnp.int8), **attributes)
    assert seen["stage"] is ExecutionStage.EXECUTE
    assert [(b.dtype, b.shape, b.size) for b in seen["arguments"]] == [
        ("f32", (2, 3), 24),
        ("bf16", (), 2),
        ("s8", (0, 4), 0),
    ]
    assert seen["arguments"][0].address == x.unsafe_buffer_pointer()
    assert seen["attributes"] == {**attributes, "array": (0, 1, 2)}
    assert seen["one"] == "hé\n'\""
    assert seen["device"] == 0
    assert isinstance(seen["run_id"], int)


def test_a_result_that_is_aliased_is_its_operand() -> None:
    seen: list[tuple[int, int]] = []

    def function(frame: CallFrame) -> None:
        (operand,), (result,) = frame.arguments, frame.results
        assert (operand.shape, operand.dtype, operand.size) == (result.shape, result.dtype, result.size)
        seen.append((operand.address, result.address))

    x = jnp.arange(4.0)
    name = registered(function)
    result = call(name, x, results=jax.ShapeDtypeStruct(x.shape, x.dtype), aliases={0: 0})
    assert np.array_equal(result, x)
    ((operand_address, result_address),) = seen
    assert operand_address == result_address


def test_a_handler_can_write_its_result() -> None:
    import ctypes

    def function(frame: CallFrame) -> None:
        (operand,), (result,) = frame.arguments, frame.results
        data = np.frombuffer(ctypes.string_at(operand.address, operand.size), np.float32) * 2
        ctypes.memmove(result.address, data.tobytes(), result.size)

    x = jnp.arange(4.0)
    result = call(registered(function), x, results=jax.ShapeDtypeStruct(x.shape, x.dtype))
    assert np.array_equal(result, 2 * np.arange(4.0))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ValueError("a reason"),
            r"INTERNAL: in custom call \S+: ValueError: a reason \(.*test_ffi.py:\d+ in ",
        ),
        (
            StatusError(StatusCode.NOT_FOUND, "no such buffer"),
            r"NOT_FOUND: in custom call \S+: no such buffer",
        ),
        (ValueError("cut \0 here"), r"ValueError: cut "),
        (KeyboardInterrupt(), r"CANCELLED: in custom call \S+: interrupted from the keyboard"),
        (SystemExit(3), r"INTERNAL: in custom call \S+: SystemExit: 3"),
    ],
)
def test_what_a_handler_raises_becomes_xlas_error(error: BaseException, message: str) -> None:
    def function(frame: CallFrame) -> None:
        raise error

    name = registered(function)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        call(name, jnp.ones(3))
    jax.clear_caches()


def test_the_next_call_after_a_failure_works() -> None:
    failing = iter([True, False])

    def function(frame: CallFrame) -> None:
        if next(failing):
            raise RuntimeError("once")

    operation = jax.ffi.ffi_call(registered(function), (), has_side_effect=True)

    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        operation(x)
        return x + 1

    with pytest.raises(jax.errors.JaxRuntimeError, match="once"):
        program(jnp.ones(2)).block_until_ready()
    assert program(jnp.ones(2))[0] == 2
    jax.effects_barrier()


def test_a_missing_stream_is_a_status() -> None:
    seen: list[StatusError] = []

    def function(frame: CallFrame) -> None:
        with pytest.raises(StatusError) as caught:
            frame.stream  # noqa: B018
        seen.append(caught.value)

    call(registered(function), jnp.ones(3))
    assert seen[0].code is StatusCode.UNIMPLEMENTED
    assert "Stream_Get" in seen[0].message


def test_a_missing_attribute_is_a_key_error() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="KeyError: 'gone'"):
        call(registered(lambda frame: frame.attribute("gone")), jnp.ones(3), here="x")


def test_registering_again_is_allowed_and_another_function_is_not() -> None:
    handler = FfiHandler(f"jax_cmdbuf.test_ffi.{next(NAMES)}", lambda frame: None)
    handler.register()
    handler.register()
    with pytest.raises(Exception, match=r"(?i)already registered|duplicate|exists"):
        FfiHandler(handler.name, lambda frame: None).register()


def test_a_platform_without_a_plugin_is_registered_for_later() -> None:
    registered(lambda frame: None, platform="CUDA", traits=HandlerTraits.COMMAND_BUFFER_COMPATIBLE)


def test_a_handler_runs_in_many_threads_at_once() -> None:
    count, lock = 0, threading.Lock()

    def function(frame: CallFrame) -> None:
        nonlocal count
        with lock:
            count += 1

    operation = jax.ffi.ffi_call(registered(function), (), has_side_effect=True)

    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        operation(x)
        return x + 1

    def work() -> None:
        for _ in range(10):
            program(jnp.ones(2)).block_until_ready()
        jax.effects_barrier()

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == 200


def test_a_handler_object_may_die_before_its_executions() -> None:
    """XLA's table has no way back, so the entry lives on when nobody holds the handler."""
    import gc

    name = registered(lambda frame: None)
    gc.collect()
    call(name, jnp.ones(3))


@pytest.mark.parametrize("ending", ["raise SystemExit(7)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_executions_in_flight_at_the_end_do_not_crash(
    run_python: Callable[..., subprocess.CompletedProcess[str]], ending: str
) -> None:
    """Their thread is XLA's own; the thread that dispatched them is gone or asleep."""
    code = f"""
import os, signal, threading
import jax, jax.numpy as jnp
from jax_cmdbuf.api.ffi import FfiHandler
started = threading.Event()
FfiHandler("slow", lambda frame: started.set()).register()
operation = jax.ffi.ffi_call("slow", (), has_side_effect=True)
def body(i, x):
    operation(x)
    return jnp.tanh(x @ x)
program = jax.jit(lambda x: jax.lax.fori_loop(0, 5000, body, x)).lower(jnp.ones((100, 100))).compile()
dispatched, asleep = threading.Event(), threading.Event()
def work():
    program(jnp.ones((100, 100)))
    dispatched.set()
    asleep.wait()
threading.Thread(target=work, daemon=True).start()
started.wait()
dispatched.wait()
print("ending", flush=True)
{ending}
"""
    done = run_python(code)
    assert done.stdout == "ending\n"
    assert done.returncode == (7 if "Exit" in ending else -2), done.stderr
    assert "FATAL" not in done.stderr
