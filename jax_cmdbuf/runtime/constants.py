"""The memory of a program's constants.

Stands for the globals of the module that XLA loads with the executable
(``GpuExecutable::ResolveConstantGlobals``).
Invariant: a constant keeps its address on a device as long as the program is loaded, and its memory goes only
after the work that may read it is done.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import MemoryAllocation, MemoryReservation, ScopedMapping

__all__ = ["LoadedConstants"]

# Bytes to which the driver aligns a module's globals.
_ALIGNMENT = 256


class LoadedConstants:
    """The memory of a program's constants on each device; it exists as long as the program is loaded."""

    def __init__(self, executable: Executable) -> None:
        self._allocations = tuple(each for each in executable.allocations if each.is_constant and each.size)
        self._contents = {each.allocation: each.content for each in executable.constants if each.content}
        self._lock = threading.Lock()
        self._loaded: dict[se.Stream, dict[int, DeviceAddress]] = {}
        self._on_device: dict[se.StreamExecutor, dict[int, DeviceAddress]] = {}
        self._handles: list[MemoryAllocation | MemoryReservation | ScopedMapping] = []

    def on(self, stream: se.Stream) -> Mapping[int, DeviceAddress]:
        """Allocation index -> address on the stream's device; loaded at the first call."""
        addresses = self._loaded.get(stream)
        if addresses is None:
            with self._lock:
                executor = stream.executor
                addresses = self._on_device.get(executor)
                if addresses is None:
                    addresses = self._on_device[executor] = self._load(executor)
                self._loaded[stream] = addresses
        return addresses

    def _load(self, executor: se.StreamExecutor) -> dict[int, DeviceAddress]:
        # One block for all, each aligned as the driver aligns a module's globals.
        offsets, total = {}, 0
        for allocation in self._allocations:
            offsets[allocation.index] = total
            total += round_up(allocation.size, _ALIGNMENT)
        if not total:
            return {}
        with ExitStack() as undo:
            memory = undo.enter_context(executor.create_allocation(total))
            reservation = undo.enter_context(executor.create_reservation(total))
            mapping = undo.enter_context(reservation.map_to(0, memory.size, memory))
            addresses = {
                allocation.index: mapping.address.slice(offsets[allocation.index], allocation.size)
                for allocation in self._allocations
            }
            for index, content in self._contents.items():
                executor.write(addresses[index], content)
            undo.pop_all()
        self._handles += [mapping, reservation, memory]
        return addresses

    def close(self) -> None:
        """Waits for the streams that used the constants, then releases their memory.

        Raises:
          DriverError: the driver refused; closing again tries the rest.
        """
        with self._lock:
            while self._loaded and self._allocations:
                stream = next(iter(self._loaded))
                stream.synchronize()
                del self._loaded[stream]
            self._loaded.clear()
            self._on_device.clear()
            while self._handles:
                self._handles[0].close()
                del self._handles[0]
