"""A capture session without capture: the jitted step, called in a loop.

Invariant: its arrays are nobody else's; what goes in and out is copied.
"""

from __future__ import annotations

from typing import Any

import jax

from jax_cmdbuf.api.capture_step import CapturedStep

__all__ = ["LoopEngine"]


class LoopEngine:
    """``Engine`` on any backend."""

    def __init__(self, step: CapturedStep) -> None:
        self._step = step
        leaves, self._treedef = jax.tree.flatten((step.args, step.kwargs))
        # The caller may donate, delete or overwrite its own arrays.
        self._arguments = [jax.numpy.array(leaf, copy=True) for leaf in leaves]
        self._results: list[jax.Array] = []

    def write(self, leaf: int, value: Any) -> None:
        """See ``Engine``."""
        self._arguments[leaf] = jax.numpy.array(value, copy=True)

    def run(self, count: int) -> None:
        """See ``Engine``."""
        carried = len(self._step.state.leaves)
        for _ in range(count):
            args, kwargs = jax.tree.unflatten(self._treedef, self._arguments)
            self._results = jax.tree.leaves(self._step.jitted(*args, **kwargs))
            self._arguments[:carried] = self._results[:carried]

    def read_arguments(self, leaves: range) -> list[jax.Array]:
        """See ``Engine``."""
        return [jax.numpy.copy(self._arguments[leaf]) for leaf in leaves]

    def read_results(self, leaves: range) -> list[jax.Array]:
        """See ``Engine``."""
        return [jax.numpy.copy(self._results[leaf]) for leaf in leaves]

    def synchronize(self) -> None:
        """See ``Engine``."""
        jax.block_until_ready((self._arguments, self._results))  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """See ``Engine``."""
        self._arguments.clear()
        self._results.clear()
