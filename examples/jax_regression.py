"""A multi-layer perceptron fitted to a function: plain jax and optax, in the way of a first tutorial.

python examples/jax_regression.py
jax-cmdbuf run --all --update-mode=SKIP_PROFILED examples/jax_regression.py
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import optax
from jax import grad, jit, random

LAYERS = (2, 32, 32, 1)


def init(key):
    """A list of (weights, biases)."""
    keys = random.split(key, len(LAYERS) - 1)
    return [
        (random.normal(k, (m, n)) * jnp.sqrt(2.0 / m), jnp.zeros(n))
        for k, m, n in zip(keys, LAYERS[:-1], LAYERS[1:], strict=True)
    ]


def predict(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return (x @ w + b)[:, 0]


def loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))


@jit
def update(params, opt_state, x, y):
    updates, opt_state = optimizer.update(grad(loss)(params, x, y), opt_state)
    return optax.apply_updates(params, updates), opt_state


@partial(jit, static_argnums=1)
def sample(key, count):
    x = random.uniform(key, (count, 2), minval=-1.0, maxval=1.0)
    return x, jnp.sin(3 * x[:, 0]) * x[:, 1]


evaluate = jit(loss)


def main():
    key = random.key(0)
    params = init(key)
    opt_state = optimizer.init(params)
    test = sample(random.fold_in(key, 999), 256)
    for step in range(16):
        x, y = sample(random.fold_in(key, step), 64)
        params, opt_state = update(params, opt_state, x, y)
        if step % 5 == 0:
            print(f"step {step}: test loss {evaluate(params, *test):.8f}")
    print(f"final test loss {evaluate(params, *test):.8f}")


if __name__ == "__main__":
    main()
