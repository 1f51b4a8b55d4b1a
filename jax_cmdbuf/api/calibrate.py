"""A calibration of the GPU at hand: all measurements in one go.

Invariant: the device's own memory is used and given back; XLA's buffers are not touched.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, cast

import jax

from jax_cmdbuf.api.measure import (
    MeasurableDevice,
    measure_command_buffers,
    measure_copies,
    measure_dispatch,
    measure_memory,
    wall_clock,
)
from jax_cmdbuf.api.measure_native import measure_native
from jax_cmdbuf.api.session import cuda_executor
from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.runtime.calibration import Calibration
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig

__all__ = ["calibrate"]

_BUFFER_BYTES = 256 << 20


def calibrate(on_step: Callable[[str], object] = lambda step: None) -> Calibration:
    """Measures the process's first CUDA device, in under a minute.

    Args:
      on_step: told what is measured next.

    Raises:
      MissingDependencyError: no CUDA device, or a part of the machine that a measurement needs is missing.
      DriverError: the driver refused a call.
    """
    device = _cuda_device()
    found: dict[str, float] = {}
    on_step("XLA's command buffers")
    found |= measure_native()
    executor = cuda_executor(device.local_hardware_id or 0)
    with executor.activate():
        # The CUDA classes take only one another's objects, which the protocols cannot say.
        measurable = cast(MeasurableDevice, executor)
        stream = cast(se.Stream, executor.create_stream())
        on_step("virtual memory")
        found |= measure_memory(measurable, wall_clock)
        with DeviceAddressVmmAllocator([DeviceConfig(stream)]) as allocator:
            ordinal = executor.device_ordinal
            first, second = (allocator.allocate(ordinal, _BUFFER_BYTES) for _ in range(2))
            on_step("command buffers")
            found |= measure_command_buffers(measurable, stream, (first, second), wall_clock)
            on_step("copies")
            found |= measure_copies(stream, (first, second), wall_clock)
            for buffer in (first, second):
                allocator.deallocate(ordinal, buffer)
    on_step("JAX's dispatch")
    found |= measure_dispatch(wall_clock)
    return Calibration(device.device_kind, executor.driver_version, version("jaxlib"), found)


def _cuda_device() -> Any:
    device = jax.local_devices()[0]
    if device.platform not in ("cuda", "gpu"):
        raise MissingDependencyError(f"calibrate measures a CUDA GPU, and JAX has none here, only {device}")
    return device
