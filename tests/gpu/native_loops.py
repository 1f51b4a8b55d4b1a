"""Loops under XLA's own command buffers, in a process of their own; prints what happened as one JSON object.

    python native_loops.py UPDATE_MODE

Each loop first runs undecorated, for its values, then decorated; a probe in the middle reports where XLA has
the buffers. Every result is waited for before the next call.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.probe import PROBE_LOG, probe
from jax_cmdbuf.api.xla_runtime import xla_runtime

EXECUTIONS = 8
State = dict[str, Any]
# Name -> the function, arguments of the n-th call, which are donated, whether results are kept for one call.
Loop = tuple[Callable[..., Any], Callable[[int, State], tuple[Any, ...]], tuple[int, ...], bool]
LOOPS: dict[str, Loop] = {}


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape) * 0.05


# Made at first use: whoever only wants the loops' names must not start JAX's backends.
@cache
def weights() -> list[jax.Array]:
    return [normal(seed, 128, 128) for seed in range(6)]


@cache
def inputs() -> list[jax.Array]:
    return [normal(100 + seed, 128, 128) for seed in range(4)]


def gemms(a, b, c):
    return (a @ b) @ c


def layers(matrices, h):
    for weight in matrices:
        h = jnp.tanh(h @ weight)
    return h


def probed(a, b, c):
    h = jnp.tanh(a @ b)
    probe(a, b, h, label="probed")
    return jnp.sin((h @ c) @ b)


def train(p, m, batch):
    value, gradient = jax.value_and_grad(lambda p: jnp.mean((layers(p, batch) - 1) ** 2))(p)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, m, gradient)
    return jax.tree.map(lambda p, m: p - 0.1 * m, p, m), m, value


def training(i: int, state: State) -> tuple[Any, ...]:
    if "result" in state:
        p, m, _ = state.pop("result")
    else:
        p, m = [weight + 0 for weight in weights()], [jnp.zeros_like(weight) for weight in weights()]
    return p, m, inputs()[0]


LOOPS["probed"] = probed, lambda i, s: (inputs()[0], weights()[0], weights()[1]), (), False
LOOPS["stable"] = gemms, lambda i, s: (inputs()[0], weights()[0], weights()[1]), (), False
LOOPS["held"] = layers, lambda i, s: (weights(), inputs()[0]), (), True
LOOPS["rotating"] = layers, lambda i, s: (weights(), inputs()[i % 3]), (), True
LOOPS["changing_in_profile"] = layers, lambda i, s: (weights(), inputs()[i >= 2]), (), False
LOOPS["changing_later"] = layers, lambda i, s: (weights(), inputs()[i >= 5]), (), False
LOOPS["feedback"] = layers, lambda i, s: (weights(), s.get("result", inputs()[0])), (), True
LOOPS["feedback_donated"] = layers, lambda i, s: (weights(), s.pop("result", inputs()[0] + 0)), (1,), True
LOOPS["shared"] = gemms, lambda i, s: (inputs()[0], inputs()[0], weights()[1]), (), False
LOOPS["training"] = train, training, (0, 1), True
LOOPS["host_batch"] = gemms, lambda i, s: (np.asarray(inputs()[0]), weights()[0], weights()[1]), (), False


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def called(*args: Any) -> Any:
        return function(*args)

    called.__name__ = called.__qualname__ = name
    return called


def addresses(tree: Any) -> list[int | None]:
    leaves = jax.tree.leaves(tree)
    return [leaf.unsafe_buffer_pointer() if isinstance(leaf, jax.Array) else None for leaf in leaves]


def run(call: Callable[..., Any], loop: Loop, seen: list[Any] | None = None) -> list[Any]:
    """The results, on the host; what callers see of addresses goes to ``seen``."""
    _, arguments, _, is_held = loop
    state: State = {}
    values = []
    for i in range(EXECUTIONS):
        given = arguments(i, state)
        before = addresses(given)
        result = jax.block_until_ready(call(*given))
        if seen is not None:
            seen.append({"arguments": before, "results": addresses(result)})
        values.append(jax.tree.map(np.asarray, result))
        del given
        if is_held:
            state["result"] = result
        del result
    return values


def main(mode: str) -> None:
    report: dict[str, Any] = {"platform": jax.default_backend(), "loops": {}}
    for name, loop in LOOPS.items():
        function, _, donated, _ = loop
        expected = run(jax.jit(named(function, f"plain_{name}"), donate_argnums=donated), loop)
        PROBE_LOG.clear()
        call = command_buffer(named(function, name), update_mode=mode, donate_argnums=donated)
        seen: list[Any] = []
        found = run(call, loop, seen)
        jax.effects_barrier()
        (profile,) = [each for each in xla_runtime().observed() if each.function == name]
        report["loops"][name] = {
            "same": jax.tree.all(jax.tree.map(lambda a, b: a.tobytes() == b.tobytes(), expected, found)),
            "seen": seen,
            "probed": [record.addresses for record in PROBE_LOG.records()],
            "profile": profile.snapshot.to_json(),
            "moves": {str(allocation): count for allocation, count in profile.moves.items()},
            "compared": profile.compared,
            "problem": profile.problem,
            "status": {
                "requested": call.update_mode_status.requested,
                "effective": call.update_mode_status.effective,
                "reason": call.update_mode_status.reason,
                "remedy": call.update_mode_status.remedy,
            },
        }
    print("report: " + json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
