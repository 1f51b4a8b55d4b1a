from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf import _jax
from jax_cmdbuf.api.native_plan import Signature, Tracked, argument_leaves, make_native_plan
from jax_cmdbuf.errors import InputError
from jax_cmdbuf.runtime.registry import ProfileRegistry
from tests.api.native_programs import pretend
from xla_flags.options import CommandBufferUpdateMode

PROFILED = CommandBufferUpdateMode.SKIP_PROFILED


def x() -> jax.Array:
    return jnp.ones((2, 2))


def signature_of(jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any], paths: list[str]) -> Signature:
    lowered = jitted.lower(*args, **kwargs)
    compiled = lowered.compile()
    static = _jax.static_arguments(jitted)
    leaves = argument_leaves(args, kwargs, static, compiled.input_shardings)
    return Signature(lowered, compiled, tuple(paths), leaves)


def test_static_unused_and_host_arguments_keep_their_places() -> None:
    @functools.partial(jax.jit, static_argnums=1, static_argnames="how")
    def function(a, n, c, *, how, extra):
        return a * n + c["v"] + extra["used"]

    args, kwargs = (
        (x(), 3, {"u": x(), "v": x()}),
        {"how": "fast", "extra": {"used": np.ones((2, 2)), "w": x()}},
    )
    signature = signature_of(function, args, kwargs, ["a", "c['u']", "c['v']", "extra['used']", "extra['w']"])
    # Leaves of (args, kwargs): a, n, c.u, c.v, extra.used, extra.w, how.
    assert signature.leaves == (0, None, 3, None, None)
    plan = make_native_plan(signature, PROFILED, ProfileRegistry(), pretend)
    assert {i: plan.loaded.program.paths[i] for i in range(3)} == {0: "a", 1: "c['v']", 2: "extra['used']"}
    assert plan.tracked == (Tracked(0, False, 0), Tracked(1, False, 3), Tracked(3, True, 0))


def test_a_static_argument_may_be_a_container() -> None:
    function = jax.jit(lambda shape, a: a.reshape(shape), static_argnums=0)
    signature = signature_of(function, ((4, 1), x()), {}, ["a"])
    assert signature.leaves == (2,)
    negative = jax.jit(lambda a, shape: a.reshape(shape), static_argnums=-1)
    assert signature_of(negative, (x(), (4, 1)), {}, ["a"]).leaves == (0,)


def test_an_array_that_lies_as_declared_is_seen() -> None:
    there = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    function = jax.jit(lambda a: a + 1, in_shardings=there)
    assert signature_of(function, (x(),), {}, ["a"]).leaves == (0,)


def test_a_donated_argument_is_where_the_result_is() -> None:
    function = jax.jit(lambda a, b: (a + b, b * 2), donate_argnums=0)
    signature = signature_of(function, (x(), x()), {}, ["a", "b"])
    read = functools.partial(pretend, aliased=[(0, 0)])
    plan = make_native_plan(signature, PROFILED, ProfileRegistry(), read)
    assert plan.tracked == (Tracked(1, False, 1), Tracked(0, True, 0), Tracked(2, True, 1))


def test_the_mode_decides_what_is_profiled_but_not_what_is_seen() -> None:
    signature = signature_of(jax.jit(lambda a: a + 1), (x(),), {}, ["a"])
    plans = [
        make_native_plan(signature, mode, ProfileRegistry(), pretend)
        for mode in (CommandBufferUpdateMode.ALWAYS_UPDATE, PROFILED)
    ]
    assert plans[0].tracked == plans[1].tracked
    assert [len(plan.loaded.program.classification.candidates) for plan in plans] == [0, 2]


def test_another_number_of_arrays_is_refused() -> None:
    function = jax.jit(lambda a, b: a + b)
    signature = signature_of(function, (x(), x()), {}, ["a", "b"])
    other = function.lower(x(), x()), jax.jit(lambda a: a).lower(x()).compile()
    with pytest.raises(InputError, match="takes 1 arrays, but JAX passes 2"):
        make_native_plan(signature, PROFILED, ProfileRegistry(), lambda compiled: pretend(other[1]))


def test_nothing_is_compiled_for_it() -> None:
    compiled = []

    def listen(name: str, duration: float, **kwargs: Any) -> None:
        if "backend_compile" in name:
            compiled.append(name)

    function = jax.jit(lambda a, b: (a + b, b), donate_argnums=0)
    a, b = x(), x()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        function(a, b)
        assert len(compiled) == 1
        assert a.is_deleted()
        make_native_plan(signature_of(function, (a, b), {}, ["a", "b"]), PROFILED, ProfileRegistry(), pretend)
        assert len(compiled) == 1
    finally:
        jax.monitoring.clear_event_listeners()
