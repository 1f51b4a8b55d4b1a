"""The one place that picks a backend: the simulated device, or a real one.

Invariant: a backend is chosen by name; nothing falls back from a real device to a simulated one.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, SimulatedStream, StreamMode

__all__ = ["SimulatedDevice", "simulated_device"]


class SimulatedDevice:
    """A simulated device with one stream; what ``runtime.replay.ReplayDevice`` asks for.

    Attributes:
      executor: the device.
      stream: its stream.
    """

    def __init__(self, executor: SimulatedExecutor, stream: SimulatedStream) -> None:
        self.executor = executor
        self.stream = stream

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
