"""The one place that picks a backend: the simulated device, or a real one.

Invariant: a backend is chosen by name; nothing falls back from a real device to a simulated one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, cast

from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, SimulatedStream, StreamMode

if TYPE_CHECKING:
    from jax_cmdbuf.stream_executor.cuda import CudaExecutor

__all__ = ["Device", "SimulatedDevice", "cuda_device", "cuda_executor", "simulated_device"]


class Device(Protocol):
    """A device with the stream on which programs run."""

    @property
    def stream(self) -> se.Stream:
        """The stream; its executor is the device."""

    def activate(self) -> AbstractContextManager[None]:
        """Makes the device the calling thread's for a ``with`` block."""


class SimulatedDevice:
    """A simulated device with one stream; what ``runtime.replay.ReplayDevice`` asks for.

    Attributes:
      executor: the device.
      stream: its stream.
    """

    def __init__(self, executor: SimulatedExecutor, stream: SimulatedStream) -> None:
        self.executor = executor
        self.stream = stream

    def activate(self) -> AbstractContextManager[None]:
        """See ``Device``; any thread can use a simulated device."""
        return nullcontext()

    def choose_address(self, address: int) -> None:
        """Makes the next address range begin at ``address``."""
        self.executor.memory.choose_addresses(address)

    def verify_aliases(self, pairs: Sequence[tuple[DeviceAddress, DeviceAddress]]) -> None:
        """Faults unless both addresses of every pair lead to the same memory."""
        self.stream.check_aliases(pairs)


def simulated_device(device_ordinal: int = 0, mode: StreamMode = StreamMode.AUTO) -> SimulatedDevice:
    """A fresh simulated device with nothing allocated."""
    executor = SimulatedExecutor(device_ordinal)
    return SimulatedDevice(executor, executor.create_stream(mode))


@functools.cache
def cuda_executor(device_ordinal: int) -> CudaExecutor:
    """The process's CUDA device of that number, opened once.

    Raises:
      MissingDependencyError: no cuda-python, or no driver on this machine.
      DriverError: no such device.
    """
    from jax_cmdbuf.stream_executor.cuda import CudaExecutor

    return CudaExecutor(device_ordinal)


class _CudaDevice:
    """``Device`` on a stream that somebody else owns."""

    def __init__(self, executor: CudaExecutor, handle: int) -> None:
        self._executor = executor
        # The CUDA classes take only one another's objects, which the protocol cannot say.
        self.stream = cast(se.Stream, executor.wrap_stream(handle))

    def activate(self) -> AbstractContextManager[None]:
        """See ``Device``."""
        return self._executor.activate()


@functools.cache
def cuda_device(device_ordinal: int, stream: int) -> Device:
    """The CUDA device of that number with a stream of XLA's; one object for each stream of the process.

    Args:
      device_ordinal: its number.
      stream: the ``CUstream``.

    Raises:
      MissingDependencyError: no cuda-python, or no driver on this machine.
      DriverError: no such device.
    """
    from jax_cmdbuf.stream_executor.cuda import CudaExecutor

    # Profiles and recordings are told apart by executor, and each belongs to one stream.
    return _CudaDevice(CudaExecutor(device_ordinal), stream)
