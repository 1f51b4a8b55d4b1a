"""One training step of a small transformer: flax.linen, optax.adamw, donated state.

`train_step_args()` describes the arguments by shape only: no weights are made and no GPU is needed.

    jax-cmdbuf plan examples/train_step.py:train_step --target=h200
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state

VOCABULARY = 1024
LENGTH = 128
BATCH = 8
WIDTH = 256
HEADS = 4
BLOCKS = 2


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and a residual connection."""

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS, name="attention")(y, y, mask=mask)
        y = nn.Dense(4 * WIDTH, name="up")(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH, name="down")(nn.gelu(y))


class Transformer(nn.Module):
    """A causal language model: tokens i32[batch, length] to logits f32[batch, length, vocabulary]."""

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        embedding = nn.Embed(VOCABULARY, WIDTH, name="embedding")
        positions = self.param("positions", nn.initializers.normal(0.02), (LENGTH, WIDTH))
        x = embedding(tokens) + positions
        mask = nn.make_causal_mask(tokens)
        for index in range(BLOCKS):
            x = Block(name=f"block_{index}")(x, mask)
        return embedding.attend(nn.LayerNorm(name="final_norm")(x))


def create_state(key: jax.Array) -> train_state.TrainState:
    """The model's parameters and the optimizer's state, from a random key."""
    model = Transformer()
    params = model.init(key, jnp.zeros((BATCH, LENGTH), jnp.int32))["params"]
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(3e-4))


@functools.partial(jax.jit, donate_argnums=0)
def train_step(
    state: train_state.TrainState, tokens: jax.Array, targets: jax.Array
) -> tuple[train_state.TrainState, jax.Array]:
    """The state after one step, in the memory of the old one, and the mean loss f32[]."""

    def loss_of(params: dict[str, jax.Array]) -> jax.Array:
        logits = state.apply_fn({"params": params}, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def train_step_args() -> tuple[train_state.TrainState, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """The positional arguments of `train_step`, as shapes."""
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    return jax.eval_shape(create_state, jax.random.key(0)), tokens, tokens
