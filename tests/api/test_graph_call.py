from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_cmdbuf.api.graph_call import GraphCall, describe_call
from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.executable.executable import Executable
from tests.api.graph_programs import matrix, recorded


def products(a: Any, b: Any, c: Any) -> Any:
    return (a @ b) @ c


def describe(jitted: Any, program: Executable, *args: Any) -> GraphCall:
    traced = jitted.trace(*args)
    lowered = traced.lower()
    return describe_call(traced, lowered, lowered.compile(), program)


def refused(jitted: Any, program: Executable, *args: Any) -> str:
    with pytest.raises(StatusError) as caught:
        describe(jitted, program, *args)
    assert caught.value.code is StatusCode.UNIMPLEMENTED
    return caught.value.message


def test_arguments_that_the_program_does_not_take_are_left_out() -> None:
    jitted = jax.jit(lambda a, unused, pair: products(a, *pair))
    call = describe(jitted, recorded("two_gemm_drop"), matrix(), jnp.ones(3), (matrix(), matrix()))
    assert call.kept == (0, 2, 3)
    assert call.aliases == {}
    assert [each.shape for each in call.results] == [(128, 128)]
    assert call.weak == (False,)


def test_a_donated_argument_is_aliased_to_its_result() -> None:
    def mlp(weights: Any, h: Any) -> Any:
        for weight in weights:
            h = jnp.tanh(h @ weight)
        return h

    jitted = jax.jit(mlp, donate_argnums=1)
    call = describe(jitted, recorded("feedback_donate"), [matrix()] * 8, matrix())
    assert call.aliases == {8: 0}


@pytest.mark.parametrize(
    ("function", "name", "args", "reason"),
    [
        (lambda a: jnp.abs(jnp.fft.fft(a)), "sort_fft", 1, "only XLA can run kFft"),
        (products, "feedback_donate", 3, "the function has 3 arguments, the program 9"),
        (lambda a, b, c: (a @ b, c + 1), "two_gemm_drop", 3, "the function has 2 results, the program 1"),
        (
            lambda a, b, c: (a @ b @ c)[:2],
            "two_gemm_drop",
            3,
            "result 0 has 1024 bytes, and XLA keeps it in 65536",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    function: Callable[..., Any], name: str, args: int, reason: str
) -> None:
    assert reason in refused(jax.jit(function), recorded(name), *[matrix()] * args)


def test_several_devices_are_refused() -> None:
    program = dataclasses.replace(recorded("two_gemm_drop"), num_partitions=2)
    assert refused(jax.jit(products), program, *[matrix()] * 3) == "it runs on 2 devices"


def test_other_layouts_and_memories_are_refused() -> None:
    program = recorded("two_gemm_drop")
    allocations = list(program.allocations)
    (result,) = program.result_allocations
    allocations[result] = dataclasses.replace(allocations[result], color=1)
    moved = dataclasses.replace(program, allocations=tuple(allocations))
    assert "memory space 1" in refused(jax.jit(products), moved, *[matrix()] * 3)
    from jax.experimental.layout import Format, Layout

    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    transposed = Format(Layout((1, 0)), sharding)
    jitted = jax.jit(products, out_shardings=transposed)
    assert "an array has the layout (1, 0)" in refused(jitted, program, *[matrix()] * 3)


def test_keys_are_passed_as_their_words_and_weak_types_are_kept() -> None:
    def draw(key: Any, x: Any) -> Any:
        return jax.random.normal(key, ()) * x, x * 2

    jitted = jax.jit(draw)
    call = GraphCall(
        (0, 1), (jax.ShapeDtypeStruct((), jnp.float32),) * 2, (False, True), jax.tree.structure((0, 0)), {}
    )
    traced = jax.jit(lambda key, x: call.emit("none", [key, x])).trace(jax.random.key(0), 1.0)
    assert [aval.weak_type for aval in traced.jaxpr.out_avals] == [False, True]
    (custom,) = [each for each in traced.jaxpr.eqns if each.primitive.name == "ffi_call"]
    assert [var.aval.dtype.name for var in custom.invars] == ["uint32", "float32"]
    assert [aval.weak_type for aval in jitted.trace(jax.random.key(0), 1.0).jaxpr.out_avals] == [False, True]
