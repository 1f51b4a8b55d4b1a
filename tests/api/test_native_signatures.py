from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.native_signatures import Signatures


@pytest.fixture
def jitted() -> Any:
    def function(x, scale=1, **named):
        return x * scale

    return jax.jit(function, static_argnums=1)


def add(signatures: Signatures[str], value: str, size: int, *args: Any, **kwargs: Any) -> None:
    key = signatures.key(args, kwargs)
    assert key is not None
    signatures.add(key, value, size, args, kwargs)


def test_one_signature_needs_no_look(jitted: Any) -> None:
    signatures: Signatures[str] = Signatures(jitted)
    assert signatures.find(0, (jnp.ones(3),), {}) is None
    add(signatures, "a", 1, jnp.ones(3))
    assert (signatures.only, signatures.complete) == ("a", 1)
    # An entry that nobody knows: every call is looked at.
    add(signatures, "a", 5, np.ones(3, np.float32))
    assert signatures.complete == -1
    assert signatures.find(5, (jnp.ones(3),), {}) == "a"
    assert signatures.find(5, (jnp.ones(4),), {}) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (((jnp.ones(3),), {}), ((jnp.ones(4),), {})),
        (((jnp.ones(3),), {}), ((jnp.ones(3, jnp.int32),), {})),
        (((jnp.ones(3),), {}), ((np.ones(3, np.float32),), {})),
        (((jnp.ones(()),), {}), ((jnp.asarray(1.0),), {})),
        (((1,), {}), ((1.0,), {})),
        (((jnp.ones(3),), {}), (([jnp.ones(3)],), {})),
        (((jnp.ones(3),), {}), ((), {"x": jnp.ones(3)})),
        (((jnp.ones(3), 1), {}), ((jnp.ones(3), 2), {})),
        (((jnp.ones(3),), {}), ((jax.device_put(jnp.ones(3), jax.devices()[0]),), {})),
    ],
)
def test_what_jax_tells_apart_is_told_apart(jitted: Any, one: Any, other: Any) -> None:
    signatures: Signatures[str] = Signatures(jitted)
    add(signatures, "one", 1, *one[0], **one[1])
    assert signatures.find(2, *other) is None
    add(signatures, "other", 2, *other[0], **other[1])
    assert (signatures.only, signatures.complete) == (None, 2)
    for size in (2, 3):
        assert signatures.find(size, *one) == "one"
        assert signatures.find(size, *other) == "other"


def test_settings_belong_to_the_signature(jitted: Any) -> None:
    signatures: Signatures[str] = Signatures(jitted)
    x = np.ones(3)
    add(signatures, "32 bits", 1, x)
    with jax.default_matmul_precision("float32"):
        assert signatures.find(2, (x,), {}) is None
        add(signatures, "other", 2, x)
        assert signatures.find(2, (x,), {}) == "other"
    assert signatures.find(2, (x,), {}) == "32 bits"


def test_the_place_that_differs_is_enough(jitted: Any) -> None:
    signatures: Signatures[str] = Signatures(jitted)
    weights = [jnp.ones(2) for _ in range(5)]
    for size in (8, 3, 5):
        add(
            signatures,
            f"batch {size}",
            signatures.complete + 1 if size != 8 else 1,
            (weights, jnp.ones(size)),
        )
    assert signatures.complete == 3
    for size in (8, 3, 5):
        assert signatures.find(3, ((weights, jnp.ones(size)),), {}) == f"batch {size}"
    assert signatures.find(3, ((weights, jnp.ones(7)),), {}) is None
    assert signatures.find(3, (jnp.ones(7),), {}) is None


class Pair:
    def __init__(self, one: Any, other: Any) -> None:
        self.one, self.other = one, other


jax.tree_util.register_pytree_node(Pair, lambda p: ((p.one, p.other), None), lambda _, leaves: Pair(*leaves))


@pytest.mark.parametrize("pack", [tuple, lambda pair: Pair(*pair), lambda pair: {"a": pair[1], "b": pair[0]}])
def test_the_place_is_found_in_any_structure(jitted: Any, pack: Any) -> None:
    signatures: Signatures[str] = Signatures(jitted)
    for number, size in enumerate((8, 3), start=1):
        add(signatures, f"batch {size}", number, pack((jnp.ones(2), jnp.ones(size))))
    for size in (8, 3):
        assert signatures.find(2, (pack((jnp.ones(2), jnp.ones(size))),), {}) == f"batch {size}"


def test_a_call_that_jax_refuses_has_no_key(jitted: Any) -> None:
    signatures: Signatures[str] = Signatures(jitted)
    assert signatures.key((jnp.ones(3), [1]), {}) is None  # a static argument that has no hash
    assert signatures.key(({1: 1, "a": 2},), {}) is None  # keys that have no order
    assert signatures.find(1, ({1: 1, "a": 2},), {}) is None


def test_clearing_forgets(jitted: Any) -> None:
    signatures: Signatures[str] = Signatures(jitted)
    add(signatures, "a", 1, jnp.ones(3))
    signatures.clear()
    assert (signatures.only, signatures.complete) == (None, -1)
    assert signatures.find(1, (jnp.ones(3),), {}) is None
