"""Capture sessions on a GPU: bit for bit the values of a loop over the jitted step."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_cmdbuf
from jax_cmdbuf.errors import StatusError

pytestmark = pytest.mark.gpu
RUNS = 12


def train_step(params, x, y):
    def loss(params):
        hidden = x
        for w, b in params[:-1]:
            hidden = jnp.tanh(hidden @ w + b)
        w, b = params[-1]
        return ((hidden @ w + b - y) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def decode_step(state, token):
    position, cache = state
    row = jax.nn.one_hot(token, cache.shape[1], dtype=cache.dtype)
    cache = jax.lax.dynamic_update_slice(cache, row[None] * 0.5, (position, 0))
    return (position + 1, cache), jax.nn.softmax(cache.sum(0) * 0.1)


def swap(state, x):
    """The new state's pieces come from one another, so none can be updated in place."""
    a, b = state
    return (b * 1.5, a + x), (a - b).max()


def layers(width=128, depth=4):
    keys = jax.random.split(jax.random.key(0), depth)
    return [(jax.random.normal(key, (width, width)) / width**0.5, jnp.zeros(width)) for key in keys]


def normal(draws, *shape):
    return draws.standard_normal(shape, np.float32)


def steps() -> dict[str, tuple[Any, Any, Any]]:
    return {
        "train": (train_step, layers(), lambda draws: (normal(draws, 32, 128), normal(draws, 32, 128))),
        "train_bf16": (
            train_step,
            jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), layers()),
            lambda draws: tuple(jnp.asarray(normal(draws, 32, 128), jnp.bfloat16) for _ in range(2)),
        ),
        "decode": (
            decode_step,
            (jnp.int32(0), jnp.zeros((64, 256))),
            lambda draws: (np.int32(draws.integers(256)),),
        ),
        "swap": (swap, (jnp.ones((300, 7)), jnp.zeros((300, 7))), lambda draws: (normal(draws, 300, 7),)),
        "count": (lambda n, x: (n + x, n), jnp.int32(0), lambda draws: (np.int32(draws.integers(9)),)),
    }


def assert_same_bits(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("name", list(steps()))
def test_values_are_those_of_the_loop(name: str) -> None:
    step, state, draw = steps()[name]
    draws = np.random.default_rng(1)
    jitted = jax.jit(step)
    with jax_cmdbuf.capture(step, state, *draw(draws), runtime="cuda_graph") as session:
        assert session.runtime == "cuda_graph"
        kept = []
        for turn in range(RUNS):
            batch = draw(draws)
            if turn % 3 == 1:
                batch = tuple(map(jnp.asarray, batch))
            state, out = jitted(state, *batch)
            session.run(*batch)
            assert_same_bits((session.state(), session.outputs()), (state, out))
            kept.append((session.state(), state))
        for one, other in kept:
            assert_same_bits(one, other)
        batches = [draw(draws) for _ in range(RUNS)]
        session.run_many(batches)
        for batch in batches:
            state, out = jitted(state, *batch)
        assert_same_bits((session.state(), session.outputs()), (state, out))
        session.run_many(steps=101)
        for _ in range(101):
            state, out = jitted(state, *batches[-1])
        assert_same_bits((session.state(), session.outputs()), (state, out))
        fresh = steps()[name][1]
        session.update_state(fresh)
        session.run(*batches[0])
        assert_same_bits((session.state(), session.outputs()), jitted(fresh, *batches[0]))


def test_what_only_xla_can_run_is_a_loop_with_the_reason() -> None:
    def spectrum(state, x):
        return state + 1, jnp.abs(jnp.fft.fft(x))

    x = normal(np.random.default_rng(0), 64)
    with jax_cmdbuf.capture(spectrum, jnp.int32(0), x) as session:
        assert session.runtime == "loop"
        assert "only XLA can run kFft" in (session.reason or "")
        session.run()
        assert_same_bits(session.outputs(), jax.jit(spectrum)(0, x)[1])
    with pytest.raises(StatusError, match="only XLA can run kFft"):
        jax_cmdbuf.capture(spectrum, jnp.int32(0), x, runtime="cuda_graph")


def test_inputs_may_be_deleted_and_memory_reused_right_after_a_run() -> None:
    step, state, _ = steps()["swap"]
    jitted = jax.jit(step)
    with jax_cmdbuf.capture(step, state, jnp.zeros((300, 7)), runtime="cuda_graph") as session:
        for turn in range(50):
            batch = jnp.full((300, 7), turn, jnp.float32) * 0.5
            session.run(batch)
            batch.delete()
            jax.block_until_ready([jnp.full((300, 7), -1.0) for _ in range(4)])
            state, _ = jitted(state, jnp.full((300, 7), turn, jnp.float32) * 0.5)
        assert_same_bits(session.state(), state)


def test_sessions_leave_nothing_behind() -> None:
    from cuda.bindings import driver

    step, state, draw = steps()["train"]
    batch = draw(np.random.default_rng(0))

    def free() -> int:
        gc.collect()
        status, free, _ = driver.cuMemGetInfo()
        assert status == driver.CUresult.CUDA_SUCCESS
        return int(free)

    before = 0
    for turn in range(12):
        with jax_cmdbuf.capture(step, state, *batch, runtime="cuda_graph") as session:
            session.run_many(steps=70)
            session.outputs()
        if turn == 3:
            before = free()
    assert free() >= before - (4 << 20)
