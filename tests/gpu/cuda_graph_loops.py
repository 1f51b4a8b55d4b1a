"""Loops under ``runtime="cuda_graph"``, in a process of their own; prints what happened as one JSON object.

    python cuda_graph_loops.py UPDATE_MODE...

Each loop first runs as ``jax.jit`` makes it, for its values, then decorated under each mode. Every result is
waited for before the next call.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_cmdbuf.api.cuda_graph_runtime import GraphReport, cuda_graph_runtime
from jax_cmdbuf.api.decorator import command_buffer

EXECUTIONS = 10
# Small programs must become command buffers too; what a library would run, a kernel does.
OPTIONS = {"xla_gpu_graph_min_graph_size": 1, "xla_gpu_experimental_disable_binary_libraries": True}
State = dict[str, Any]
# Name -> the function, arguments of the n-th call, options of jax.jit, whether results are kept for one call.
Loop = tuple[Callable[..., Any], Callable[[int, State], tuple[Any, ...]], dict[str, Any], bool]
LOOPS: dict[str, Loop] = {}
FALLBACKS = ("spectrum", "callback")


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape) * 0.05


# Made at first use: whoever only wants the loops' names must not start JAX's backends.
@cache
def weights() -> list[jax.Array]:
    return [normal(seed, 128, 128) for seed in range(6)]


@cache
def inputs() -> list[jax.Array]:
    return [normal(100 + seed, 128, 128) for seed in range(5)]


def two_gemm(x, a, b):
    return jnp.tanh(x @ a) @ b


def layers(matrices, h):
    for weight in matrices:
        h = jnp.tanh(h @ weight)
    return h


def train(p, m, batch):
    value, gradient = jax.value_and_grad(lambda p: jnp.mean((layers(p, batch) - 1) ** 2))(p)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, m, gradient)
    return jax.tree.map(lambda p, m: p - 0.1 * m, p, m), m, value


def training(i: int, state: State) -> tuple[Any, ...]:
    if "result" in state:
        p, m, _ = state.pop("result")
    else:
        p, m = [weight + 0 for weight in weights()], [jnp.zeros_like(weight) for weight in weights()]
    return p, m, inputs()[i % 2]


def mixed(tree, key, n, scale):
    noise = jax.random.normal(key, (33, 7))
    return {"a": tree["a"] * noise.sum() + n, "b": tree["b"] + 1, "same": tree["a"]}, scale * 2, noise[:0]


def spectrum(x):
    return jnp.abs(jnp.fft.fft(x)), x + 1


def callback(x):
    return jax.pure_callback(lambda x: np.asarray(x) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + x


def mixed_arguments(i: int, state: State) -> tuple[Any, ...]:
    tree = {"a": inputs()[i % 5][:33, :7], "b": np.full((3,), i, np.int8), "unused": inputs()[0]}
    return tree, jax.random.key(i), np.int32(i), 0.5 * i


LOOPS["two_gemm"] = two_gemm, lambda i, s: (inputs()[0], weights()[0], weights()[1]), {}, False
LOOPS["held"] = layers, lambda i, s: (weights(), inputs()[0]), {}, True
LOOPS["rotating"] = layers, lambda i, s: (weights(), inputs()[i % 3]), {}, True
LOOPS["changing_later"] = layers, lambda i, s: (weights(), inputs()[i >= 6]), {}, False
LOOPS["feedback"] = layers, lambda i, s: (weights(), s.get("result", inputs()[0])), {}, True
LOOPS["feedback_donated"] = (
    layers,
    lambda i, s: (weights(), s.pop("result", inputs()[0] + 0)),
    {"donate_argnums": 1},
    True,
)
LOOPS["shared_late"] = (
    two_gemm,
    lambda i, s: (inputs()[0], inputs()[0 if i > 5 else 1], weights()[0]),
    {},
    False,
)
LOOPS["training"] = train, training, {"donate_argnums": (0, 1)}, True
LOOPS["training_kept"] = train, training, {}, True
LOOPS["host_batch"] = (
    two_gemm,
    lambda i, s: (np.asarray(inputs()[i % 5]), weights()[0], weights()[1]),
    {},
    False,
)
LOOPS["mixed"] = mixed, mixed_arguments, {}, False
LOOPS["spectrum"] = spectrum, lambda i, s: (inputs()[i % 5],), {}, False
LOOPS["callback"] = callback, lambda i, s: (inputs()[i % 5],), {}, False


_MODE = "xla_gpu_command_buffer_update_mode"
# Where this jaxlib has modes at all.
_ALWAYS_UPDATE = {_MODE: "ALWAYS_UPDATE"} if "SKIP_PROFILED" in os.environ.get("XLA_FLAGS", "") else {}


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def called(*args: Any) -> Any:
        return function(*args)

    called.__name__ = called.__qualname__ = name
    return called


def pointers(tree: Any) -> list[int]:
    return [
        leaf.unsafe_buffer_pointer()
        for leaf in jax.tree.leaves(tree)
        if isinstance(leaf, jax.Array) and leaf.size
    ]


def bits(result: Any) -> list[Any]:
    return [
        (str(leaf.dtype), leaf.shape, leaf.weak_type, np.asarray(leaf).tobytes())
        for leaf in jax.tree.leaves(result)
    ]


def run(call: Callable[..., Any], loop: Loop, after: Callable[[Any, Any], None]) -> list[Any]:
    """The results' bits; ``after`` is told the addresses of donated arguments and the result."""
    _, arguments, options, is_held = loop
    donated = options.get("donate_argnums", ())
    donated = donated if isinstance(donated, tuple) else (donated,)
    state: State = {}
    found = []
    for i in range(EXECUTIONS):
        given = arguments(i, state)
        before = pointers([given[number] for number in donated])
        result = jax.block_until_ready(call(*given))
        after(before, result)
        found.append(bits(result))
        del given
        if is_held:
            state["result"] = result
        del result
    return found


def report_of(name: str) -> GraphReport:
    (report,) = [each for each in cuda_graph_runtime().reports() if each.function == name]
    return report


def one(name: str, mode: str, expected: list[Any]) -> dict[str, Any]:
    function, _, options, _ = loop = LOOPS[name]
    label = f"{name}_{mode}"
    call = command_buffer(
        named(function, label), runtime="cuda_graph", update_mode=mode, compiler_options=OPTIONS, **options
    )
    events: list[dict[str, int]] = []
    in_place: list[bool] = []
    seen: Counter[str] = Counter()

    def after(given: Any, result: Any) -> None:
        now = Counter(report_of(label).events)
        events.append(dict(now - seen))
        seen.update(now - seen)
        in_place.append(set(given) <= set(pointers(result)))

    found = run(call, loop, after)
    report = report_of(label)
    differing = [i for i, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]
    status = call.update_mode_status
    return {
        "differing": differing,
        "events": events,
        "in_place": in_place,
        "runs": report.runs,
        "native_reason": report.native_reason,
        "remapping_reason": report.remapping_reason,
        "phases": [each.phase for each in report.profiles],
        "selected": [len(each.selected) for each in report.profiles],
        "demotions": [each.reason for profile in report.profiles for each in profile.demotions],
        "status": [status.requested, status.effective, status.reason],
    }


def free_memory() -> int:
    from cuda.bindings import driver

    status, free, _ = driver.cuMemGetInfo()
    assert status == driver.CUresult.CUDA_SUCCESS
    return int(free)


def leak(mode: str) -> int:
    """Bytes of device memory that 100 executions take in the long run; results are dropped, deleted or kept.

    XLA's and our frees wait for the device, so one round may end with some pending; what leaks grows in each.
    """
    call = command_buffer(
        named(two_gemm, f"leak_{mode}"), runtime="cuda_graph", update_mode=mode, compiler_options=OPTIONS
    )
    kept: list[jax.Array] = []
    free: list[int] = []
    for i in range(420):
        result = jax.block_until_ready(call(inputs()[i % 5], weights()[0], weights()[1]))
        if i % 3 == 0:
            result.delete()
        elif i % 3 == 1:
            kept = [*kept[-4:], result]
        del result
        if i % 100 == 19:
            free.append(free_memory())
    return min(earlier - later for earlier, later in itertools.pairwise(free))


def nested(mode: str) -> dict[str, bool]:
    """Decorated functions inside other transformations."""
    call = command_buffer(named(two_gemm, f"nested_{mode}"), runtime="cuda_graph", update_mode=mode)
    x, a, b = inputs()[0], weights()[0], weights()[1]

    def same(ours: Callable[..., Any], plain: Callable[..., Any]) -> bool:
        return bool(jnp.allclose(ours(call), plain(two_gemm), rtol=1e-3, atol=1e-5))

    def inside(f: Any) -> Any:
        return jax.jit(lambda x: f(x, a, b) + 1)(x)

    def gradient(f: Any) -> Any:
        return jax.grad(lambda x: f(x, a, b).sum())(x)

    def batched(f: Any) -> Any:
        return jax.vmap(f, (0, None, None))(jnp.stack([x, a]), a, b)

    return {each.__name__: same(each, each) for each in (inside, gradient, batched)}


def main(modes: list[str]) -> None:
    report: dict[str, Any] = {"platform": jax.default_backend(), "jax": jax.__version__, "loops": {}}
    for name, loop in LOOPS.items():
        function, _, options, _ = loop
        # XLA's own SKIP_PROFILED fails one of the loops, and the mode changes no value.
        plain = jax.jit(
            named(function, f"plain_{name}"), compiler_options=OPTIONS | _ALWAYS_UPDATE, **options
        )
        expected = run(plain, loop, lambda given, result: None)
        for mode in modes:
            report["loops"][f"{name}-{mode}"] = one(name, mode, expected)
    report["leaks"] = {mode: leak(mode) for mode in modes}
    report["nested"] = {mode: nested(mode) for mode in modes}
    gc.collect()
    cuda_graph_runtime().collect()
    report["left"] = [each.function for each in cuda_graph_runtime().reports()]
    print("report: " + json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
