"""What the decorator costs per call where XLA runs the function: not observed, while profiling, once active.

The same jitted function is called with and without it, in turn and in batches, so that both see the same
machine; a number is the difference of two medians over batches. A buffer is one array of the arguments or of
the result. "active" is the mean of a long run: of the calls after the profile is decided the first 64 are
read, later 16 of 256; "read" is what a call costs that is. "several" is a function with two signatures, whose
calls have to be told apart. Run it where nothing else runs: the differences are small.

On a GPU this is the real thing. On a CPU a made-up executable stands for the GPU's; the costs are Python's
and alike. Prints a table; exits with 1 when a cost is over its budget and ``--check`` is given.

    PYTHONPATH=.:flags python benchmarks/decorator.py [--seconds 1.0] [--phases active off] [--check]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.xla_runtime import XlaRuntime, set_xla_runtime
from tests.api.native_programs import pretend
from xla_flags.options import CommandBufferUpdateMode

# Arrays that go in; as many come out, so twice as many buffers.
ARGUMENTS = (1, 5, 10, 25, 50, 100)
# Calls in a batch; a multiple of what is read and not read in turn.
BATCH = 256
# Microseconds: per call, and per buffer.
BUDGETS = {
    "off": (1.0, 0.0),
    "profiling": (10.0, 0.5),
    "active": (3.0, 0.3),
    "several": (3.0, 0.3),
}


def update(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value + 1 for name, value in params.items()}


def arguments(count: int, size: int = 8) -> dict[str, Any]:
    return {f"layer{number}": jnp.ones(size) for number in range(count)}


def decorated(observe: bool = True) -> Any:
    # A function object of its own, so that JAX's cache is its own too.
    return command_buffer(
        jax.jit(lambda params: update(params)), update_mode="SKIP_PROFILED", runtime="xla", observe=observe
    )


def microseconds(call: Callable[[Any], Any], given: Any, repeat: int = BATCH) -> float:
    """Of one call, in a batch."""
    result = None
    started = time.perf_counter()
    for _ in range(repeat):
        result = call(given)
    taken = time.perf_counter() - started
    jax.block_until_ready(result)
    return taken / repeat * 1e6


def compare(call: Any, given: Any, seconds: float, repeat: int = BATCH) -> tuple[float, float]:
    """Median of the undecorated function in microseconds per call, and what the decorator adds to it."""
    plain, observed = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(plain) < 5:
        plain.append(microseconds(call.jitted, given, repeat))
        observed.append(microseconds(call, given, repeat))
    without = statistics.median(plain)
    return without, statistics.median(observed) - without


def settled(count: int) -> tuple[Any, Any]:
    """A function past the decision and past the calls that are all read."""
    call, given = decorated(), arguments(count)
    for _ in range(400):
        call(given)
    return call, given


def measure_off(count: int, seconds: float) -> tuple[float, float]:
    call, given = decorated(observe=False), arguments(count)
    call(given)
    return compare(call, given, seconds)


def measure_active(count: int, seconds: float) -> tuple[float, float]:
    return compare(*settled(count), seconds)


def measure_read(count: int, seconds: float) -> tuple[float, float]:
    """Calls whose addresses are all read, comparing them included."""
    call, given = settled(count)
    program = call._native.__self__._signatures.only
    program._next = lambda is_burst: (program._careful, BATCH)
    return compare(call, given, seconds)


def measure_several(count: int, seconds: float) -> tuple[float, float]:
    call, given = settled(count)
    other = arguments(count, size=4)
    for _ in range(400):
        call(other)
    return compare(call, given, seconds)


def measure_profiling(count: int, seconds: float) -> tuple[float, float]:
    """The second and third call of a function; each function has only these two."""
    plain, observed = [], []
    given = arguments(count)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(plain) < 20:
        call = decorated()
        jax.block_until_ready(call(given))
        jax.block_until_ready(call.jitted(given))
        # Who comes second finds everything warm, so they take turns.
        observed.append(microseconds(call, given, 1))
        plain.append(microseconds(call.jitted, given, 1))
        plain.append(microseconds(call.jitted, given, 1))
        observed.append(microseconds(call, given, 1))
    without = statistics.median(plain)
    return without, statistics.median(observed) - without


def show_dispatch(size: int = 4096, products: int = 20) -> None:
    """When a call returns whose result takes long: addresses are read without waiting for values."""

    def function(x: Any) -> Any:
        for _ in range(products):
            x = x @ x
        return x

    call = command_buffer(jax.jit(function), update_mode="SKIP_PROFILED", runtime="xla")
    given = jnp.zeros((size, size), jnp.bfloat16)
    for _ in range(5):
        jax.block_until_ready(call(given))
    for name, each in (("undecorated", call.jitted), ("decorated", call)):
        started = time.perf_counter()
        result = each(given)
        returned = time.perf_counter()
        jax.block_until_ready(result)
        ready = time.perf_counter()
        print(
            f"a long call, {name}: returned after {(returned - started) * 1e6:.0f} us, "
            f"ready after {(ready - started) * 1e6:.0f} us"
        )


MEASURES = {
    "off": measure_off,
    "profiling": measure_profiling,
    "active": measure_active,
    "read": measure_read,
    "several": measure_several,
}


def simulate_a_gpu() -> None:
    mode = CommandBufferUpdateMode.SKIP_PROFILED
    client = NativeClient("gpu", "a made-up executable", frozenset({mode.value}), mode, "vmm")
    set_xla_runtime(XlaRuntime(client, pretend))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="per number")
    parser.add_argument("--phases", nargs="*", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--check", action="store_true", help="exit with 1 when a cost is over its budget")
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        simulate_a_gpu()
    device = jax.devices()[0]
    on_gpu = jax.default_backend() == "gpu"
    show_dispatch(*((8192, 20) if on_gpu else (512, 8)))
    print(f"{device.device_kind}, jax {jax.__version__}; microseconds per call")
    print(
        f"{'phase':>10} {'buffers':>8} {'jit':>8} {'adds':>8} {'ratio':>6} {'per buffer':>11} {'budget':>8}"
    )
    over = 0
    for phase in options.phases:
        measure = MEASURES[phase]
        per_call, per_buffer = BUDGETS.get(phase, (math.inf, 0.0))
        first = None
        for count in ARGUMENTS:
            buffers = 2 * count
            without, added = measure(count, options.seconds)
            first = added if first is None else first
            slope = (added - first) / (buffers - 2) if buffers > 2 else math.nan
            budget = per_call + per_buffer * buffers
            over += added > budget
            print(
                f"{phase:>10} {buffers:>8} {without:>8.1f} {added:>8.2f} {1 + added / without:>6.2f} "
                f"{slope:>11.3f} {budget:>8.1f}{'  over' if added > budget else ''}",
                flush=True,
            )
    return 1 if options.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
