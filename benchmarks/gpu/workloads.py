"""Loops for the GPU benchmarks: launch-bound steps, passing arrays in the ways that are met in practice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

LAYERS = 12
WIDTH = 256


@dataclass(frozen=True)
class Workload:
    """A loop: ``state, out = step(state, fixed, batch)`` with ``batches`` in turns.

    Attributes:
      step: the function.
      state: makes the first state, which may be None.
      fixed: an argument that stays.
      batches: the last argument, in turns.
      donate: whether the loop gives its state away.
    """

    step: Callable[[Any, Any, Any], Any]
    state: Callable[[], Any]
    fixed: Any
    batches: list[Any]
    donate: bool = False


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.fold_in(jax.random.key(0), seed), shape) * 0.05


def mlp(weights: Any, h: jax.Array) -> jax.Array:
    for w in weights:
        h = jnp.tanh(h @ w)
    return h


def train(state: Any, fixed: Any, batch: jax.Array) -> Any:
    params, momentum = state

    def loss(params: Any) -> jax.Array:
        return jnp.mean((mlp(params, batch) - 1.0) ** 2)

    value, gradient = jax.value_and_grad(loss)(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return (jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum), value


def block(params: Any, h: jax.Array) -> jax.Array:
    q, k, v = h @ params["q"], h @ params["k"], h @ params["v"]
    h = h + (jax.nn.softmax(q @ k.T / WIDTH**0.5) @ v) @ params["o"]
    mean = jnp.mean(h, -1, keepdims=True)
    h = (h - mean) / jnp.sqrt(jnp.var(h, -1, keepdims=True) + 1e-5)
    return h + jax.nn.gelu(h @ params["u"]) @ params["d"]


def block_params(seed: int) -> dict[str, jax.Array]:
    params = {name: normal(seed + i, WIDTH, WIDTH) for i, name in enumerate("qkvo")}
    return params | {"u": normal(seed + 8, WIDTH, 4 * WIDTH), "d": normal(seed + 9, 4 * WIDTH, WIDTH)}


def decode(state: Any, params: Any, batch: Any) -> Any:
    caches, h, position = state
    new = []
    for cache, layer in zip(caches, params, strict=True):
        cache = jax.lax.dynamic_update_slice(cache, (h @ layer["k"])[None], (position % 64, 0))
        attention = jax.nn.softmax(cache @ (h @ layer["q"]) / WIDTH**0.5)
        h = jnp.tanh(h + (attention @ cache) @ layer["o"])
        new.append(cache)
    return (new, h, position + 1), h.sum()


def workloads() -> dict[str, Workload]:
    """All loops by name; makes their arrays."""
    weights = [normal(i, WIDTH, WIDTH) for i in range(LAYERS)]
    x = normal(100, 64, WIDTH)
    xs = [normal(200 + i, 64, WIDTH) for i in range(3)]
    blocks = [block_params(300 + 20 * i) for i in range(8)]
    decoder = [block_params(600 + 20 * i) for i in range(4)]

    def stateless(state: Any, fixed: Any, batch: Any) -> Any:
        return state, mlp(fixed, batch)

    def feed(state: Any, fixed: Any, batch: Any) -> Any:
        return mlp(fixed, state), None

    def transform(state: Any, fixed: Any, batch: Any) -> Any:
        for each in fixed:
            batch = block(each, batch)
        return state, batch

    def train_state() -> Any:
        return [w + 0 for w in weights], [jnp.zeros_like(w) for w in weights]

    def decode_state() -> Any:
        return [jnp.zeros((64, WIDTH)) for _ in decoder], normal(900, WIDTH), jnp.int32(0)

    def none() -> None:
        return None

    def start() -> jax.Array:
        return x + 0

    return {
        "mlp_same": Workload(stateless, none, weights, [x]),
        "mlp_rotate": Workload(stateless, none, weights, xs),
        "mlp_feedback": Workload(feed, start, weights, [None]),
        "mlp_donate": Workload(feed, start, weights, [None], donate=True),
        "train": Workload(train, train_state, None, xs),
        "train_donate": Workload(train, train_state, None, xs, donate=True),
        "transformer": Workload(transform, none, blocks, [normal(800, 64, WIDTH)]),
        "decode": Workload(decode, decode_state, decoder, [None], donate=True),
    }
