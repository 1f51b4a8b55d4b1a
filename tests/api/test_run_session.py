"""A session from beginning to end; afterwards everything is as before."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.observation import simulation
from jax_cmdbuf.api.run_ending import Ending
from jax_cmdbuf.api.run_session import RunSession
from tests.api.simulated_programs import matrix, two_gemm

ENDING = Ending(("a.py",), "finished", "", 0, 5.0, 7.0)


@pytest.mark.parametrize("observe_all", [False, True])
def test_a_session_gives_back_what_it_took(observe_all: bool) -> None:
    jit, runtime = jax.jit, simulation().runtime
    session = RunSession(observe_all)
    assert (jax.jit is jit) is not observe_all
    assert session.progress() == "no observed call yet"
    two_gemm()(matrix(), matrix(), matrix())
    report = session.end(ENDING)
    assert [each.function for each in report.functions] == ["multiply"]
    assert jax.jit is jit
    assert simulation().runtime is not runtime  # the one before may have been in use; a new one is made


def test_our_own_jitting_is_observed_once() -> None:
    session = RunSession(True)
    function = two_gemm()
    function(matrix(), matrix(), matrix())
    assert [each.calls for each in session.end(ENDING).functions] == [1]


def layers(state: jax.Array, weights: list[jax.Array], batch: Any, rate: Any) -> tuple[jax.Array, jax.Array]:
    """A step with a state, weights that stay, a batch that is new each time, a number and a result."""
    h = batch
    for weight in weights:
        h = jnp.tanh(h @ weight + state)
    return state + rate * h, jnp.sin(h)


@pytest.mark.aot
def test_advice_that_is_followed_leaves_nothing_to_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_CMDBUF_MODE", "SKIP_PROFILED")
    weights = [jnp.full((128, 128), n / 100) for n in range(6)]
    batches = [np.full((128, 128), n / 50, np.float32) for n in range(7)]
    session = RunSession(True)
    try:
        careless = jax.jit(layers)
        state = jnp.zeros((128, 128))
        for batch in batches:
            state, extra = careless(state, weights, batch, 0.5)
        expected = np.asarray(state), np.asarray(extra)

        @functools.partial(jax.jit, donate_argnames=("state", "out"), keep_unused=True)
        def careful(state: Any, weights: Any, batch: Any, rate: Any, out: Any) -> Any:
            return layers(state, weights, batch, rate)

        put = jax.jit(lambda old, new: old.at[...].set(new), donate_argnums=0)
        rate, kept, out = jnp.asarray(0.5), jnp.zeros((128, 128)), jnp.ones((128, 128))
        state = jnp.zeros((128, 128))
        for batch in batches:
            kept = put(kept, batch)
            state, out = careful(state, weights, kept, rate, out)
    finally:
        report = session.end(ENDING)
    np.testing.assert_array_equal(state, expected[0])
    np.testing.assert_array_equal(out, expected[1])
    functions = {each.function: each for each in report.functions}
    before, after = functions["layers"], functions["careful"]
    assert {(each.action, each.path) for each in before.advice} == {
        ("donate", "state"),
        ("upload once", "batch"),
        ("upload once", "rate"),
        ("reuse result", "result[1]"),
    }
    assert before.updated_per_step == before.commands
    assert after.advice == ()
    assert after.updated_per_step == 0
    assert after.persistent is not None
    assert {each.index for each in after.allocations} <= set(after.persistent)
