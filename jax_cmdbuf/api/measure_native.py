"""What XLA's own command buffers cost: updating a command, and moving a persistent buffer.

Only a whole process can be given an allocator, so each figure comes from a process of its own (this module).
It runs a chain of matrix products with one weight, from one buffer or from two in turns, and waits for every
call: the difference is what XLA did about the address. Invariant: what XLA does differently is counted by
simulating the same executable under the same mode, not assumed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

import jax
import jax.numpy as jnp

from jax_cmdbuf.api.step_counts import count_step
from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, load_target
from jax_cmdbuf.runtime.forecast import CallerHabits
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["measure_native"]

_LAYERS = 32
_ROWS = 16384
_CALLS = 200
_WARMUP = 12
_TIMEOUT_S = 120
_OPTIONS = "--xla_gpu_graph_min_graph_size=1"


def measure_native() -> dict[str, float]:
    """Measures in processes of their own.

    Returns:
      "native.update" and "native.remap", in microseconds.

    Raises:
      MissingDependencyError: the process failed; its last line says why.
    """
    always = _in_process(CommandBufferUpdateMode.ALWAYS_UPDATE)
    profiled = _in_process(CommandBufferUpdateMode.SKIP_PROFILED)
    return {
        "native.update": max(always["microseconds"], 0.0) / always["updated"],
        "native.remap": max(profiled["microseconds"], 0.0) / profiled["remapped"],
    }


def _in_process(mode: CommandBufferUpdateMode) -> dict[str, float]:
    environment = os.environ | {
        "XLA_FLAGS": f"{_OPTIONS} --xla_gpu_command_buffer_update_mode={mode.name}",
        # The same allocator for all modes, so that only the mode differs.
        "XLA_PYTHON_CLIENT_ALLOCATOR": "vmm",
        "JAX_CMDBUF_FLAGS": "off",
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__, mode.name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise MissingDependencyError(f"measuring XLA under {mode.name} failed: {reason}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _chain(x: jax.Array, weight: jax.Array) -> jax.Array:
    for _ in range(_LAYERS):
        x = jnp.tanh(x @ weight)
    return x.sum()


def _measure_here(mode: CommandBufferUpdateMode) -> dict[str, float]:
    """What moving the weight adds to a call, in microseconds and in what the simulation says is done."""
    # The intermediate results are larger than one granule and the result is not, so they never swap places
    # and nothing moves but the weight.
    x, *weights = (
        jax.random.normal(jax.random.key(seed), (rows, 64)) / 8
        for seed, rows in ((0, _ROWS), (1, 64), (1, 64))
    )
    compiled = jax.jit(_chain).lower(x, weights[0]).compile()
    executable = Executable.from_compiled(compiled)  # type: ignore[arg-type]
    # Only the CUDA versions in it matter here.
    device = executable.device or load_target(DEFAULT_TARGET).device
    conversion = convert(executable, device=device)
    still, moving = (
        count_step(executable, conversion, mode, CallerHabits(frozenset(), leaves, False, takes_turns=True))
        for leaves in (frozenset[int](), frozenset({1}))
    )
    for _ in range(_WARMUP):
        jax.block_until_ready(compiled(x, weights[0]))  # type: ignore[no-untyped-call]
    times: dict[str, list[float]] = {"still": [], "moving": []}
    for name, turns in (("still", (0,)), ("moving", (0, 1))):
        for call in range(_CALLS):
            begin = time.perf_counter_ns()
            jax.block_until_ready(compiled(x, weights[turns[call % len(turns)]]))  # type: ignore[no-untyped-call]
            times[name].append((time.perf_counter_ns() - begin) / 1000)
    return {
        "microseconds": statistics.median(times["moving"]) - statistics.median(times["still"]),
        "updated": moving.updated - still.updated,
        "remapped": moving.driver_calls.get("cuMemMap", 0) - still.driver_calls.get("cuMemMap", 0),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure_here(CommandBufferUpdateMode[sys.argv[1]])) + "\n")
