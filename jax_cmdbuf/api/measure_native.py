"""What XLA's own command buffers cost: updating a command, and moving a persistent buffer.

Only a whole process can be given an allocator, so each figure comes from a process of its own (this module).
It runs a chain of matrix products with one weight, from one buffer or from two in turns, and waits for every
call: the difference is what XLA did about the address. Invariant: how many commands use the weight is counted
in the executable.
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

from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, load_target
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["measure_native"]

_LAYERS = 32
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
        "native.update": max(always["moving"] - always["still"], 0.0) / always["commands"],
        "native.remap": max(profiled["moving"] - profiled["still"], 0.0),
    }


def _in_process(mode: CommandBufferUpdateMode) -> dict[str, float]:
    environment = os.environ | {
        "XLA_FLAGS": f"{_OPTIONS} --xla_gpu_command_buffer_update_mode={mode.name}",
        # The same allocator for all modes, so that only the mode differs.
        "XLA_PYTHON_CLIENT_ALLOCATOR": "vmm",
        "JAX_CMDBUF_FLAGS": "off",
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__],
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
    return x


def _measure_here() -> dict[str, float]:
    """Median microseconds of a call, the weight in one buffer or in two; and the commands that use it."""
    x, *weights = (jax.random.normal(jax.random.key(seed), (64, 64)) / 8 for seed in (0, 1, 1))
    compiled = jax.jit(_chain).lower(x, weights[0]).compile()
    executable = Executable.from_compiled(compiled)  # type: ignore[arg-type]
    weight = executable.parameter_allocations[1]
    # Only the CUDA versions in it matter here.
    device = executable.device or load_target(DEFAULT_TARGET).device
    commands = sum(
        weight in thunk.allocations
        for buffer in convert(executable, device=device).command_buffers
        for thunk in buffer.commands
    )
    for _ in range(_WARMUP):
        jax.block_until_ready(compiled(x, weights[0]))  # type: ignore[no-untyped-call]
    times: dict[str, list[float]] = {"still": [], "moving": []}
    for name, turns in (("still", (0,)), ("moving", (0, 1))):
        for call in range(_CALLS):
            begin = time.perf_counter_ns()
            jax.block_until_ready(compiled(x, weights[turns[call % len(turns)]]))  # type: ignore[no-untyped-call]
            times[name].append((time.perf_counter_ns() - begin) / 1000)
    return {name: statistics.median(values) for name, values in times.items()} | {"commands": commands or 1}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure_here()) + "\n")
