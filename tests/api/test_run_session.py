"""A session from beginning to end; afterwards everything is as before."""

from __future__ import annotations

import jax
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
