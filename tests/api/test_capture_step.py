"""A traced step: names, paths and types of its arguments, and what of its result is the state."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.capture_step import trace_step
from jax_cmdbuf.errors import InputError


def step(params, x, *rest, scale=1.0):
    return jax.tree.map(lambda leaf: leaf * scale, params), {"loss": x.sum()}


PARAMS = {"b": jnp.zeros(2), "a": jnp.ones((2, 3), jnp.bfloat16)}


def test_arguments_have_the_function_s_names_and_jax_s_order():
    traced = trace_step(step, PARAMS, (np.zeros(3, np.float32), jnp.int32(1)), {"scale": 2.0})
    assert traced.name == "step"
    assert [leaf.path for leaf in traced.arguments] == [
        "params['a']",
        "params['b']",
        "x",
        "argument 2",
        "scale",
    ]
    assert [str(leaf) for leaf in traced.arguments] == [
        *("bfloat16[2,3]", "float32[2]", "float32[3]", "int32[]", "float32[]")
    ]
    assert traced.state.leaves == range(2)
    assert {name: slot.leaves for name, slot in traced.slots.items()} == {
        "x": range(2, 3),
        "argument 2": range(3, 4),
        "scale": range(4, 5),
    }
    assert traced.positional == ("x", "argument 2")
    assert [leaf.path for leaf in traced.results] == ["result[0]['a']", "result[0]['b']", "result[1]['loss']"]
    assert traced.output_leaves == range(2, 3)


def test_numbers_take_the_captured_dtype_if_they_keep_their_kind():
    traced = trace_step(lambda s, n, x: s, 0.0, (3, 1.5), {})
    values = {slot.name: array for slot, (array,) in traced.bind((7, 2), {})}
    assert {name: (array.dtype.name, array.item()) for name, array in values.items()} == {
        "n": ("int32", 7),
        "x": ("float32", 2.0),
    }
    with pytest.raises(InputError, match=r"n is float32\[\], but int32\[\] was captured"):
        traced.bind((7.5,), {})


def test_callables_without_names():
    traced = trace_step(functools.partial(step, scale=3.0), PARAMS, (jnp.zeros(3),), {})
    assert traced.name == "partial"
    assert list(traced.slots) == ["x"]
