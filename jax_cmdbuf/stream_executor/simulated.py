"""The simulated device: strict, deterministic, and still until it is told to move. It computes no values.

Stands for a CUDA device and its driver. Invariant: at every submit each address must lead to memory the
device may use, and each alias to the same physical memory as its owner, as they must when the work finishes;
otherwise the device faults as a GPU would, and its streams stay so.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import DriverError, MemoryAllocation, MemoryReservation
from jax_cmdbuf.stream_executor.simulated_command_buffer import SimulatedCommandBuffer
from jax_cmdbuf.stream_executor.simulated_memory import (
    COSTS_H200,
    GRANULARITY,
    Cost,
    MappedRange,
    SimulatedDriver,
    SimulatedVirtualMemory,
)

__all__ = ["H200_BYTES", "SimulatedExecutor", "SimulatedKernel", "SimulatedStream", "StreamMode"]

H200_BYTES = 141 << 30


class StreamMode(Enum):
    """When a simulated stream works.

    AUTO: at once. ON_WAIT: one entry each time the host waits for it, or when told. TOLD: only when told, by
    another thread if the host waits.
    """

    AUTO = "auto"
    ON_WAIT = "on wait"
    TOLD = "told"


@dataclass(frozen=True, slots=True)
class SimulatedKernel:
    """A kernel that does nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class _Work:
    """Submitted work and where its addresses led."""

    label: str
    uses: tuple[tuple[DeviceAddress, MappedRange], ...]


class SimulatedStream:
    """A stream of a simulated device."""

    def __init__(self, executor: SimulatedExecutor, mode: StreamMode) -> None:
        self.executor = executor
        self.mode = mode
        self._entries: deque[int | _Work] = deque()
        self._completed_seqno = 0
        self._condition = threading.Condition()

    @property
    def pending_count(self) -> int:
        """Entries enqueued and not done."""
        return len(self._entries)

    def enqueue_seqno(self, seqno: int) -> None:
        """See ``Stream``."""
        self._check_fault("cuStreamWriteValue64")
        self._enqueue(seqno)

    def completed_seqno(self) -> int:
        """See ``Stream``."""
        return self._completed_seqno

    def memcpy_d2d(self, destination: DeviceAddress, source: DeviceAddress) -> None:
        """See ``Stream``; the addresses are checked, there are no bytes."""
        self.submit((destination.slice(0, source.size), source), "copy")

    def memcpy_h2d(self, destination: DeviceAddress, source: int) -> None:
        """See ``Stream``; the destination is checked, there are no bytes."""
        self.submit((destination,), "copy from the host")

    def wait_microseconds(self, duration: float) -> None:
        """See ``Stream``. Costs simulated time; real time only in mode TOLD.

        Raises:
          DriverError: the device has faulted, so waiting longer would not help.
        """
        self.executor.driver.microseconds += duration
        if self.executor.fault is not None:
            raise self.executor.fault
        if self.mode is StreamMode.TOLD:
            with self._condition:
                self._condition.wait(duration / 1e6)
        else:
            self.advance()

    def synchronize(self) -> None:
        """See ``Stream``; counts as telling."""
        self._check_fault("cuStreamSynchronize")
        self.advance(len(self._entries))

    def submit(self, addresses: Iterable[DeviceAddress], label: str = "work") -> None:
        """Enqueues work that uses ``addresses``; null and empty ones are not looked at.

        Args:
          addresses: every range the work reads or writes.
          label: names the work in errors.

        Raises:
          DriverError: CUDA_ERROR_ILLEGAL_ADDRESS; the device has faulted and refuses everything from now on.
        """
        resolve = self.executor.memory.resolve
        self._check_fault("submit")
        uses = []
        for address in addresses:
            if address.opaque and address.size:
                found = resolve(address)
                if found is None:
                    raise self._fault(f"{label} uses {address}, which is not mapped or has no access")
                uses.append((address, found))
        if self.mode is not StreamMode.AUTO or self._entries:
            self._enqueue(_Work(label, tuple(uses)))

    def check_aliases(self, aliases: Iterable[tuple[DeviceAddress, DeviceAddress]]) -> None:
        """Checks that work will reach the memory its caller means.

        Args:
          aliases: pairs (address that the work uses, owning address).

        Raises:
          DriverError: CUDA_ERROR_ILLEGAL_ADDRESS: a pair leads to different memory, or nowhere.
        """
        resolve = self.executor.memory.resolve
        for address, owner in aliases:
            found, expected = resolve(address), resolve(owner)
            if found is None or found != expected:
                raise self._fault(f"{address} is used for {owner}, but they lead to {found} and {expected}")

    def advance(self, entries: int = 1) -> None:
        """Does the next ``entries`` entries, or as many as there are.

        Raises:
          DriverError: memory of unfinished work was unmapped or exchanged; the device has faulted.
        """
        with self._condition:
            for _ in range(min(entries, len(self._entries))):
                self._finish(self._entries.popleft())
            self._condition.notify_all()

    def _enqueue(self, entry: int | _Work) -> None:
        with self._condition:
            if self.mode is StreamMode.AUTO and not self._entries:
                self._finish(entry)
            else:
                self._entries.append(entry)

    def _finish(self, entry: int | _Work) -> None:
        if isinstance(entry, int):
            self._completed_seqno = entry
            return
        for address, expected in entry.uses:
            if self.executor.memory.resolve(address) != expected:
                raise self._fault(f"{address} was unmapped or exchanged while {entry.label} used it")

    def _fault(self, detail: str) -> DriverError:
        self.executor.fault = DriverError("submit", "CUDA_ERROR_ILLEGAL_ADDRESS", detail)
        return self.executor.fault

    def _check_fault(self, call: str) -> None:
        """Counts a call; a device that has faulted refuses it."""
        self.executor.driver.enter(call)
        fault = self.executor.fault
        if fault is not None:
            raise DriverError(call, fault.error, f"the device has faulted before: {fault.message}")


class SimulatedExecutor:
    """``StreamExecutor`` of a simulated device.

    Attributes:
      driver: counts, costs and failure injection.
      memory: the page table; ``memory.choose_addresses`` decides the next fresh addresses.
      fault: how work went wrong; from then on streams refuse everything, while memory can still be released.
    """

    def __init__(
        self,
        device_ordinal: int = 0,
        total_bytes: int = H200_BYTES,
        granularity: int = GRANULARITY,
        costs: Mapping[str, Cost] = COSTS_H200,
    ) -> None:
        self.device_ordinal = device_ordinal
        self.driver = SimulatedDriver(costs)
        self.memory = SimulatedVirtualMemory(self.driver, total_bytes, granularity)
        self.fault: DriverError | None = None
        self._foreign: dict[int, tuple[MemoryAllocation, MemoryReservation]] = {}

    @property
    def granularity(self) -> int:
        """See ``StreamExecutor``."""
        return self.memory.granularity

    def create_allocation(self, size: int) -> MemoryAllocation:
        """See ``StreamExecutor``."""
        return MemoryAllocation(self.memory, size)

    def create_reservation(self, size: int) -> MemoryReservation:
        """See ``StreamExecutor``."""
        return MemoryReservation(self.memory, size)

    def create_stream(self, mode: StreamMode = StreamMode.AUTO) -> SimulatedStream:
        """See ``StreamExecutor``; ``mode`` says when the stream works."""
        return SimulatedStream(self, mode)

    def create_command_buffer(self) -> SimulatedCommandBuffer:
        """See ``StreamExecutor``."""
        return SimulatedCommandBuffer(self)

    def load_kernel(self, module: bytes, name: str) -> SimulatedKernel:
        """See ``StreamExecutor``; the image is not read."""
        return SimulatedKernel(name)

    def write(self, address: DeviceAddress, content: bytes) -> None:
        """See ``StreamExecutor``; the address is checked, the bytes are not kept.

        Raises:
          DriverError: the address is not mapped.
        """
        self.driver.enter("cuMemcpyHtoD")
        if content and self.memory.resolve(address) is None:
            raise DriverError("cuMemcpyHtoD", "CUDA_ERROR_INVALID_VALUE", f"{address} is not mapped")

    def allocate_foreign(self, size: int) -> DeviceAddress:
        """Memory that no VMM allocator knows (``cuMemAlloc``), as another library would bring it."""
        reservation = self.create_reservation(size)
        allocation = self.create_allocation(size)
        reservation.map_to(0, round_up(size, self.granularity), allocation)
        self._foreign[reservation.address.opaque] = allocation, reservation
        return reservation.address.slice(0, size)

    def free_foreign(self, address: DeviceAddress) -> None:
        """Gives ``allocate_foreign`` memory back.

        Raises:
          StatusError: INVALID_ARGUMENT for any other address.
        """
        found = self._foreign.pop(address.opaque, None)
        if found is None:
            raise StatusError(StatusCode.INVALID_ARGUMENT, f"{address} is no foreign memory of this device")
        allocation, reservation = found
        self.memory.unmap(reservation.address.opaque, reservation.address.size)
        reservation.close()
        allocation.close()
