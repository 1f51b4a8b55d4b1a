"""A small convolutional classifier: flax.nnx, optax.adam, images drawn here; written as for any GPU.

Nothing in it knows of command buffers:

    python examples/flax_mnist.py --steps=12
    jax-cmdbuf run --all --update-mode=SKIP_PROFILED examples/flax_mnist.py --steps=12
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

SIZE = 16
CLASSES = 4


class Classifier(nnx.Module):
    """Two convolutions, a pooling after each, and two dense layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(1, 8, kernel_size=(3, 3), rngs=rngs)
        self.second = nnx.Conv(8, 16, kernel_size=(3, 3), rngs=rngs)
        self.hidden = nnx.Linear(16 * (SIZE // 4) ** 2, 64, rngs=rngs)
        self.out = nnx.Linear(64, CLASSES, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Images f32[batch, size, size, 1] to logits f32[batch, classes]."""
        x = nnx.max_pool(nnx.relu(self.first(images)), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.second(x)), (2, 2), (2, 2))
        return self.out(nnx.relu(self.hidden(x.reshape(x.shape[0], -1))))


def batches(count: int, size: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Noisy pictures of a bar, whose direction is the label."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE] - SIZE / 2
    angles = np.arange(CLASSES) * np.pi / CLASSES
    bars = np.stack([np.abs(rows * np.cos(a) - columns * np.sin(a)) < 1.5 for a in angles])
    for _ in range(count):
        labels = generator.integers(0, CLASSES, size)
        noise = generator.normal(0, 0.5, (size, SIZE, SIZE))
        yield (bars[labels] + noise)[..., None].astype(np.float32), labels.astype(np.int32)


def loss_of(model: Classifier, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    logits = model(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits


@nnx.jit
def train_step(
    model: Classifier,
    optimizer: nnx.Optimizer,
    metrics: nnx.MultiMetric,
    images: jax.Array,
    labels: jax.Array,
) -> None:
    (loss, logits), gradients = nnx.value_and_grad(loss_of, has_aux=True)(model, images, labels)
    metrics.update(loss=loss, logits=logits, labels=labels)
    optimizer.update(model, gradients)


@nnx.jit
def evaluate(model: Classifier, images: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.mean(jnp.argmax(model(images), axis=-1) == labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(2e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    for step, (images, labels) in enumerate(batches(options.steps, options.batch, seed=1), start=1):
        train_step(model, optimizer, metrics, images, labels)
        if step % 4 == 0:
            values = metrics.compute()
            print(f"step {step}: loss {values['loss']:.6f}, accuracy {values['accuracy']:.4f}")
            metrics.reset()
    images, labels = next(batches(1, 128, seed=2))
    print(f"test accuracy {evaluate(model, images, labels):.4f}")


if __name__ == "__main__":
    main()
