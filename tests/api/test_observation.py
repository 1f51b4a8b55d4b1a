"""Who watches a decorated function, and when nobody does."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from jax_cmdbuf.api.decorator import RuntimeName
from jax_cmdbuf.api.observation import (
    current_runtime,
    native_call,
    reset_simulation,
    simulation,
    status_of,
)
from tests.api.simulated_programs import matrix, two_gemm


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    reset_simulation()
    yield
    reset_simulation()


def test_on_a_cpu_functions_are_simulated_unless_they_ask_for_xla():
    assert current_runtime(RuntimeName.AUTO) is simulation()
    assert current_runtime(RuntimeName.SIMULATED) is simulation()
    assert current_runtime(RuntimeName.XLA) is None


def test_the_simulation_is_made_once_and_forgotten_on_request():
    first = simulation()
    assert simulation() is first
    reset_simulation()
    assert simulation() is not first


def test_what_is_not_observed_is_called_as_it_is():
    step = two_gemm(observe=False)
    assert native_call(step) is step.jitted
    step(matrix(), matrix(), matrix())
    assert simulation().runtime.programs == ()
    assert native_call(two_gemm()) is None


def test_a_simulated_function_has_the_mode_it_asked_for():
    status = status_of(two_gemm(update_mode="SKIP_TEMP"))
    assert (status.requested, status.effective, status.runtime) == ("SKIP_TEMP", "SKIP_TEMP", "simulated")


def test_calls_that_run_nowhere_are_not_simulated():
    step = two_gemm()
    args = [matrix(n) for n in range(3)]
    jax.jit(step)(*args)
    jax.vmap(step)(*[arg[None] for arg in args])
    jax.grad(lambda a: step(a, *args[1:]).sum())(args[0])
    with jax.disable_jit():
        step(*args)
    assert simulation().runtime.programs == ()


def test_calls_with_values_inside_a_trace_are_not_even_planned():
    function, value = two_gemm(), matrix()
    jax.jit(lambda x: x + function(value, value, value))(value)
    assert simulation().runtime.programs == ()
