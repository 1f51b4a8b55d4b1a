"""Recorded GPU programs run through the custom call's machinery on a simulated device, on a CPU."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax

from jax_cmdbuf.api.cuda_graph_runtime import CudaGraphRuntime
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.session import SimulatedDevice, simulated_device
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.stream_executor.simulated_memory import MappedRange
from xla_flags.options import CommandBufferUpdateMode

RECORDED = Path(__file__).parents[1] / "data" / "va_remap"
CLIENT = NativeClient("cpu", "xla", None, CommandBufferUpdateMode.ALWAYS_UPDATE, "default")


@cache
def recorded(name: str) -> Executable:
    return Executable.from_file(RECORDED / name / "executable.bin.gz")


def host_device() -> SimulatedDevice:
    """A simulated device that can reach the CPU's memory, where XLA has its buffers in these tests."""
    device = simulated_device()
    memory: Any = device.executor.memory
    resolve = memory.resolve

    def resolve_host_too(address: Any) -> MappedRange | None:
        found: MappedRange | None = resolve(address)
        if found is None and memory._reservation_over(address.opaque, 1) is None:
            return MappedRange(0, address.opaque)
        return found

    memory.resolve = resolve_host_too
    return device


def graph_runtime(name: str, device: SimulatedDevice | None = None, **options: Any) -> CudaGraphRuntime:
    """A runtime on the CPU for which every function is the recorded program of that name."""
    device = device or host_device()
    return CudaGraphRuntime(
        client=CLIENT,
        read_executable=lambda compiled: recorded(name),
        open_device=lambda ordinal, stream: device,
        platform="cpu",
        **options,
    )


def matrix(seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (128, 128))
