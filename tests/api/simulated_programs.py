"""Functions simulated with a recorded executable, so that nothing is compiled for a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jax_cmdbuf.api.decorator import CommandBufferFunction, command_buffer
from jax_cmdbuf.api.observation import simulation
from jax_cmdbuf.api.simulated_runtime import SimulatedProgram

__all__ = ["feedback", "kinds", "matrix", "program_of", "two_gemm"]

RECORDED = Path(__file__).parents[1] / "data" / "va_remap"


def matrix(seed: float = 1.0) -> jax.Array:
    return jnp.full((128, 128), seed / 100, jnp.float32)


def two_gemm(**options: Any) -> CommandBufferFunction[..., Any]:
    """(a @ b) @ c of three 128 x 128 matrices, under SKIP_PROFILED unless told otherwise."""

    def multiply(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        return (a @ b) @ c

    plan = RECORDED / "two_gemm_drop" / "executable.bin.gz"
    options = {"update_mode": "SKIP_PROFILED", "runtime": "simulated", "plan": plan} | options
    return command_buffer(multiply, **options)


def feedback(**options: Any) -> CommandBufferFunction[..., Any]:
    """Eight layers on a donated 128 x 128 matrix."""

    def layers(weights: list[jax.Array], h: jax.Array) -> jax.Array:
        for weight in weights:
            h = jnp.tanh(h @ weight)
        return h

    plan = RECORDED / "feedback_donate" / "executable.bin.gz"
    options = {"update_mode": "SKIP_PROFILED", "runtime": "simulated", "plan": plan} | options
    return command_buffer(layers, donate_argnums=1, **options)


def program_of(function: CommandBufferFunction[..., Any]) -> SimulatedProgram:
    """Its only program."""
    (program,) = [each for each in simulation().runtime.programs if each.observed is function.observed]
    return program


def kinds(program: SimulatedProgram, device: int = 0) -> list[list[str]]:
    """Kinds of events of each execution."""
    return [[event.kind for event in execution.events] for execution in program.executions[device]]
