"""A recurrent network that adds up marked numbers: equinox and optax, with `eqx.filter_jit`.

python examples/equinox_gru.py
jax-cmdbuf run --all --update-mode=SKIP_PROFILED examples/equinox_gru.py
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

LENGTH = 12
BATCH = 32


class Adder(eqx.Module):
    """A GRU over (number, mark) pairs, and a linear layer."""

    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, width: int, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(2, width, key=first)
        self.out = eqx.nn.Linear(width, 1, key=second)

    def __call__(self, sequence: jax.Array) -> jax.Array:
        """Pairs f32[length, 2] to their sum f32[]."""

        def step(state: jax.Array, pair: jax.Array) -> tuple[jax.Array, None]:
            return self.cell(pair, state), None

        state, _ = jax.lax.scan(step, jnp.zeros(self.cell.hidden_size), sequence)
        return self.out(state)[0]


def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sequences with two marked numbers each, and the sums of those."""
    first, second = jax.random.split(key)
    numbers = jax.random.uniform(first, (BATCH, LENGTH))
    places = jax.vmap(lambda k: jax.random.permutation(k, LENGTH))(jax.random.split(second, BATCH))
    marks = (places < 2).astype(jnp.float32)
    return jnp.stack([numbers, marks], axis=-1), jnp.sum(numbers * marks, axis=1)


@eqx.filter_value_and_grad
def loss_of(model: Adder, sequences: jax.Array, sums: jax.Array) -> jax.Array:
    return jnp.mean((jax.vmap(model)(sequences) - sums) ** 2)


def main() -> None:
    optimizer = optax.adam(5e-3)
    key = jax.random.key(7)
    model = Adder(16, key)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit(donate="all-except-first")
    def step(batch, model, state):
        loss, gradients = loss_of(model, *batch)
        updates, state = optimizer.update(gradients, state)
        return loss, eqx.apply_updates(model, updates), state

    for number in range(10):
        batch = draw(jax.random.fold_in(key, number))
        loss, model, state = step(batch, model, state)
        print(f"step {number}: loss {loss:.7f}")


if __name__ == "__main__":
    main()
