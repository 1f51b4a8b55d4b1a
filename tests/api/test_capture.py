"""Capture sessions on a CPU, where they are the plain loop: values, structures, errors, independence."""

from __future__ import annotations

import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_cmdbuf
from jax_cmdbuf.errors import InputError, StatusError


def step(state, batch, *, rate=0.5):
    weights = {"w": state["w"] * 0.9 + batch.sum(0) * rate, "count": state["count"] + 1}
    return weights, (batch * weights["w"]).sum()


def first_state():
    return {"w": jnp.arange(4.0), "count": jnp.int32(0)}


def batches(count, seed=0):
    return [np.random.default_rng(seed + n).standard_normal((3, 4), np.float32) for n in range(count)]


def loop(state, given, **named):
    out = None
    for batch in given:
        state, out = jax.jit(partial(step, **named))(state, batch)
    return state, out


def assert_same(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


@pytest.fixture
def session():
    with jax_cmdbuf.capture(step, first_state(), batches(1)[0]) as session:
        yield session


def test_runs_are_the_loop(session):
    given = batches(5)
    for batch in given:
        session.run(batch)
    state, out = loop(first_state(), given)
    assert_same(session.state(), state)
    assert_same(session.outputs(), out)
    assert (session.runtime, session.reason) == ("loop", session.reason)
    assert "is no CUDA device" in session.reason
    assert repr(session) == "<capture of step by loop, 5 runs>"


def test_arguments_by_name_and_those_left_out(session):
    given = batches(3)
    session.run(batch=given[1])
    session.run()
    session.synchronize()
    state, out = loop(first_state(), [given[1], given[1]])
    assert_same((session.state(), session.outputs()), (state, out))


def test_many_batches_and_many_steps():
    given = batches(4)
    expected = loop(first_state(), given)
    for form in (given, [(batch,) for batch in given], [{"batch": batch} for batch in given], iter(given)):
        with jax_cmdbuf.capture(step, first_state(), given[0]) as session:
            session.run_many(form)
            assert_same((session.state(), session.outputs()), expected)
    with jax_cmdbuf.capture(step, first_state(), given[0]) as session:
        session.run_many(steps=3)
        assert_same((session.state(), session.outputs()), loop(first_state(), [given[0]] * 3))
        session.run_many(steps=0)
        assert_same(session.state(), loop(first_state(), [given[0]] * 3)[0])


def test_keyword_arguments_of_the_capture_can_be_replaced():
    given = batches(2)
    with jax_cmdbuf.capture(step, first_state(), given[0], rate=0.25) as session:
        session.run()
        session.run(given[1], rate=0.75)
        state = loop(loop(first_state(), given[:1], rate=0.25)[0], given[1:], rate=0.75)
        assert_same((session.state(), session.outputs()), state)


def test_what_is_handed_out_and_what_was_given_stay_the_caller_s(session):
    before = session.state()
    kept = jax.tree.map(np.array, before)
    batch = np.ones((3, 4), np.float32)
    session.run(batch)
    batch[:] = np.nan
    session.run()
    assert_same(before, kept)
    mine = session.state()
    jax.tree.map(lambda array: array.delete(), mine)
    session.run()
    assert not jnp.isnan(session.state()["w"]).any()


def test_a_state_that_its_own_jit_donates_is_not_taken():
    donating = jax.jit(step, donate_argnums=0)
    state = first_state()
    with jax_cmdbuf.capture(donating, state, batches(1)[0]) as session:
        session.run_many(batches(3))
        assert_same(session.state(), loop(first_state(), batches(3))[0])
    assert not state["w"].is_deleted()


def test_the_state_is_replaced(session):
    session.run()
    other = {"w": np.full(4, 7, np.float32), "count": 3}
    session.update_state(other)
    session.run(batches(1)[0])
    expected = loop({"w": jnp.full(4, 7.0), "count": jnp.int32(3)}, batches(1))
    assert_same((session.state(), session.outputs()), expected)


def test_steps_that_return_only_the_state_or_have_none():
    with jax_cmdbuf.capture(lambda x, y: x + y, jnp.zeros(3), jnp.ones(3)) as session:
        session.run_many(steps=4)
        assert session.outputs() == ()
        assert_same(session.state(), jnp.full(3, 4.0))
    with jax_cmdbuf.capture(lambda _, y: y * 2, None, jnp.ones(3)) as session:
        session.run()
        assert session.state() is None
        assert_same(session.outputs(), jnp.full(3, 2.0))
    with jax_cmdbuf.capture(lambda s, y: (s + y, y, {"z": s}), jnp.zeros(2), jnp.ones(2)) as session:
        session.run()
        assert_same(session.outputs(), (jnp.ones(2), {"z": jnp.zeros(2)}))


def test_pytrees_as_the_only_batch():
    def f(state, batch):
        return state + batch["x"], batch["y"]

    given = [{"x": jnp.float32(n), "y": jnp.float32(-n)} for n in range(4)]
    with jax_cmdbuf.capture(f, jnp.float32(0), given[0]) as session:
        session.run_many(given)
        assert_same((session.state(), session.outputs()), (jnp.float32(6), jnp.float32(-3)))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda s: s.run(np.ones((2, 4), np.float32)),
            r"batch is float32\[2,4\], but float32\[3,4\] was capt",
        ),
        (lambda s: s.run(jnp.ones((3, 4), jnp.int32)), r"batch is int32\[3,4\], but float32\[3,4\] was"),
        (lambda s: s.run((1, 2)), r"batch has the structure .* but .* was captured"),
        (lambda s: s.run(1, 2), r"step takes 1 arguments after the state, not 2"),
        (lambda s: s.run(rate=1), r"step was captured without an argument 'rate'; it has: batch"),
        (lambda s: s.run(batches(1)[0], batch=batches(1)[0]), r"batch is given twice"),
        (lambda s: s.run_many(), r"either batches or steps="),
        (lambda s: s.run_many([], steps=1), r"either batches or steps="),
        (lambda s: s.run_many(steps=-1), r"steps is -1"),
        (lambda s: s.update_state({"w": jnp.ones(4)}), r"state has the structure"),
        (
            lambda s: s.update_state({"w": jnp.ones(5), "count": 0}),
            r"state\['w'\] is float32\[5\], but float32",
        ),
    ],
)
def test_a_wrong_call_is_one_sentence_and_changes_nothing(session, call, text):
    before = session.state()
    with pytest.raises(InputError, match=text):
        call(session)
    assert_same(session.state(), before)
    session.run()


@pytest.mark.parametrize(
    ("function", "state", "text"),
    [
        (3, 0.0, "takes a function, not 3"),
        (
            lambda s, b: b,
            jnp.ones(2),
            r"return the new state.*: s is float32\[2\], and comes back as float32",
        ),
        (lambda s, b: ({"a": s}, b), jnp.ones(2), r"return the new state.*structure"),
    ],
)
def test_what_is_no_step_is_refused(function, state, text):
    with pytest.raises(InputError, match=text):
        jax_cmdbuf.capture(function, state, jnp.ones(3))


def test_runtimes():
    with pytest.raises(InputError, match=r"runtime is 'gpu'; it is one of auto, cuda_graph, loop"):
        jax_cmdbuf.capture(step, first_state(), batches(1)[0], runtime="gpu")
    with pytest.raises(StatusError, match="is no CUDA device"):
        jax_cmdbuf.capture(step, first_state(), batches(1)[0], runtime="cuda_graph")
    assert jax_cmdbuf.capture(step, first_state(), batches(1)[0], runtime="loop").reason == "asked for"


def test_closed_and_early(session):
    with pytest.raises(StatusError, match=r"outputs\(\) before the first run"):
        session.outputs()
    session.close()
    session.close()
    for call in (
        session.run,
        session.state,
        session.outputs,
        session.synchronize,
        lambda: session.run_many(steps=1),
    ):
        with pytest.raises(StatusError, match="the capture of step is closed"):
            call()


def test_after_a_failed_run_every_call_says_so():
    def explode(state, x):
        jax.debug.callback(lambda value: 1 / (value - 2), x)
        return state + x

    with jax_cmdbuf.capture(explode, jnp.float32(0), jnp.float32(1)) as session:
        session.run()
        session._engine.run = lambda count: (_ for _ in ()).throw(RuntimeError("lost the device"))
        with pytest.raises(RuntimeError, match="lost the device"):
            session.run()
        for call in (session.run, session.state):
            with pytest.raises(StatusError, match=r"a run of explode failed before: lost the device"):
                call()


def test_threads_take_turns():
    def count(state, x):
        return state + x, state

    with jax_cmdbuf.capture(count, jnp.int32(0), jnp.int32(1)) as session:
        threads = [threading.Thread(target=session.run_many, kwargs={"steps": 20}) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.state() == 160
        assert session.outputs() == 159
