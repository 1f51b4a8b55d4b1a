"""The allocator that remapping needs: device memory in mapped pieces, freed in stream order.

Mirrors ``stream_executor/device_address_vmm_allocator.h``. Which call takes which kind of address:

    ================================  =================  ==========  =====  =======
    address                           role               deallocate  map    unmap
    ================================  =================  ==========  =====  =======
    from ``allocate``                 allocator address  yes         yes    no
    from ``allocate_at``              allocator address  yes         yes    no
    a slot given to ``map``           reservation alias  no          no     yes
    ================================  =================  ==========  =====  =======

Invariant: two active allocator addresses never share physical memory, and an allocator address has at most
one active alias. Thread-safe: one lock per device, given up while waiting for the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.events import NO_SINK, Allocate, Deallocate, EventSink
from jax_cmdbuf.stream_executor.deferred_operations import XLA_BATCH, BatchLimits
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.interface import Stream, StreamExecutor
from jax_cmdbuf.stream_executor.memory import MemoryAllocation, MemoryReservation
from jax_cmdbuf.stream_executor.vmm_device import VmmDevice
from jax_cmdbuf.stream_executor.vmm_records import ReservationAlias

__all__ = ["AllocatorStatistics", "DeviceAddressVmmAllocator", "DeviceConfig"]


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """One device of an allocator.

    Attributes:
      stream: orders frees and unmaps after the work enqueued before them; its executor is the device.
      budget: most bytes of physical memory at a time; None: no limit but the device's.
      batch: how many deferred operations share one timeline write.
    """

    stream: Stream
    budget: int | None = None
    batch: BatchLimits = XLA_BATCH


@dataclass(frozen=True, slots=True)
class AllocatorStatistics:
    """How one device stands; sizes in bytes.

    Attributes:
      allocated: physical memory held, that of pending frees included.
      budget: its limit, or None.
      active: allocator addresses handed out and not freed.
      active_aliases: aliases mapped and not unmapped.
      pending: frees and unmaps that wait for the stream or for reuse.
    """

    allocated: int
    budget: int | None
    active: int
    active_aliases: int
    pending: int


class DeviceAddressVmmAllocator:
    """The allocator, for one or more devices. Every method raises NOT_FOUND for an ordinal it does not have.

    Use it as a context manager, or call ``close``: only then are its handles released for certain.
    """

    def __init__(self, devices: Sequence[DeviceConfig], sink: EventSink = NO_SINK) -> None:
        """An allocator without any memory yet.

        Args:
          devices: one entry per device.
          sink: gets ``Allocate`` and ``Deallocate`` as XLA logs them: of slots only the frees.

        Raises:
          StatusError: INVALID_ARGUMENT when two entries name one device.
        """
        self._devices = _Devices()
        self.sink = sink
        for config in devices:
            ordinal = config.stream.executor.device_ordinal
            if ordinal in self._devices:
                raise StatusError(StatusCode.INVALID_ARGUMENT, f"device ordinal {ordinal} is given twice")
            self._devices[ordinal] = VmmDevice(config.stream, config.budget, config.batch)

    def allocate(self, device_ordinal: int, size: int, device_count: int = 1) -> DeviceAddress:
        """Memory of ``size`` bytes; 0 bytes give the null address.

        Reuses, without waiting, the oldest pending free of the same rounded size and kind of program.

        Args:
          device_ordinal: the device.
          size: bytes.
          device_count: devices of the program it is for; memory for one and for several is never exchanged.

        Raises:
          StatusError: RESOURCE_EXHAUSTED when budget or device have no more, also after waiting for pending
          frees. DriverError: the driver refused; nothing is left behind.
        """
        device = self._devices[device_ordinal]
        if not size:
            return NULL_ADDRESS
        with device.lock:
            address = device.allocate(size, device_count > 1)
            if self.sink is not NO_SINK:
                self.sink.emit(Allocate(address.opaque, size))
        return address

    def allocate_at(
        self,
        device_ordinal: int,
        size: int,
        reservation: MemoryReservation,
        offset: int,
        device_count: int = 1,
    ) -> DeviceAddress:
        """Memory of ``size`` bytes, a multiple of the granularity, at ``offset`` in the caller's reservation.

        The result is an allocator address. A pending free of exactly that slot is taken back without any
        driver call. The reservation must live until the free has completed
        (``synchronize_pending_operations``).

        Raises:
          StatusError: INVALID_ARGUMENT outside the reservation; ALREADY_EXISTS when the slot is in use;
            FAILED_PRECONDITION when it overlaps another one partially; RESOURCE_EXHAUSTED as ``allocate``.
          DriverError: the driver refused; nothing is left behind.
        """
        device = self._devices[device_ordinal]
        if not size:
            return NULL_ADDRESS
        with device.lock:
            address = device.take_back_at(reservation, offset, size, device_count > 1)
            if address is None:
                address = device.allocate_at(_slot(reservation, offset, size), reservation, device_count > 1)
        return address

    def deallocate(self, device_ordinal: int, address: DeviceAddress) -> None:
        """Frees an allocator address once the work enqueued so far is done; the null address is ignored.

        Raises:
          StatusError: NOT_FOUND when it is not an active allocator address of exactly this size;
            FAILED_PRECONDITION when it has an active alias. Nothing has changed.
        """
        device = self._devices[device_ordinal]
        if not address.opaque:
            return
        with device.lock:
            device.deallocate(address)
            if self.sink is not NO_SINK:
                self.sink.emit(Deallocate(address.opaque, address.size))

    def map(
        self,
        device_ordinal: int,
        source: DeviceAddress,
        reservation: MemoryReservation,
        offset: int,
        size: int,
    ) -> DeviceAddress:
        """Makes the memory behind ``source`` reachable at ``offset`` of the caller's reservation as well.

        A stale mapping of the same memory in that slot is taken back without any driver call; a stale
        mapping of other memory is waited for.

        Args:
          device_ordinal: the device.
          source: an active allocator address.
          reservation: the caller's; must live until the later unmap has completed.
          offset: bytes from its beginning, a multiple of the granularity.
          size: bytes to map from the beginning of the memory, a multiple of the granularity; 0 does nothing.

        Returns:
          The reservation address.

        Raises:
          StatusError: INVALID_ARGUMENT for a null source, a slot outside the reservation or more bytes than
            the memory has; NOT_FOUND when the source is not an active allocator address; ALREADY_EXISTS when
            it has an active alias or the slot is in use; FAILED_PRECONDITION for a partial overlap; ABORTED
            when other threads keep changing the slot.
          DriverError: the driver refused; nothing is left behind.
        """
        device = self._devices[device_ordinal]
        if not size:
            return NULL_ADDRESS
        if not source.opaque:
            raise StatusError(StatusCode.INVALID_ARGUMENT, "addr must not be null")
        with device.lock:
            # The usual case of a loop whose buffers stay where they are: no driver call, nothing new to
            # build.
            alias = device.take_back_alias(source, reservation, offset, size)
            if alias is None:
                alias = device.map(source, _slot(reservation, offset, size), reservation)
        return alias

    def unmap(self, device_ordinal: int, reservation: MemoryReservation, offset: int, size: int) -> None:
        """Gives up an alias once the work enqueued so far is done; until then it stays mapped.

        Raises:
          StatusError: NOT_FOUND when no ``map`` made an alias there; INVALID_ARGUMENT when its size is
            another; FAILED_PRECONDITION when its unmap is pending. Nothing has changed.
        """
        device = self._devices[device_ordinal]
        if not size:
            return
        with device.lock:
            alias = device.slots.at(reservation.address.opaque + offset)
            if isinstance(alias, ReservationAlias) and not alias.stale_seqno and alias.address.size == size:
                device.deferred.defer(alias)
            else:
                raise device.unmap_error(_slot(reservation, offset, size))

    def get_raw_allocation(self, device_ordinal: int, address: DeviceAddress) -> MemoryAllocation | None:
        """The physical memory behind an exact allocator address, freed but not yet released ones included, or
        behind an active alias; None for any other address.
        """
        device = self._devices[device_ordinal]
        with device.lock:
            record = device.records.get(address.opaque)
            if record is not None and record.address.size == address.size and not record.releasing:
                return record.raw_allocation
            alias = device.slots.at(address.opaque)
            if isinstance(alias, ReservationAlias) and not alias.stale_seqno and alias.address == address:
                return alias.record.raw_allocation
        return None

    def is_exact_address(self, device_ordinal: int, address: DeviceAddress) -> bool:
        """Whether this is an allocator address, pointer and size the same; pending frees are."""
        device = self._devices[device_ordinal]
        with device.lock:
            record = device.records.get(address.opaque)
            return record is not None and record.address.size == address.size and not record.releasing

    def synchronize_pending_operations(self, device_ordinal: int) -> None:
        """Waits for every pending free and unmap and completes it.

        Raises:
          DriverError: the driver refused a release; it stays pending, and another call tries again.
        """
        device = self._devices[device_ordinal]
        with device.lock:
            device.synchronize()

    def create_reservation(self, device_ordinal: int, size: int) -> MemoryReservation:
        """A new address range for ``allocate_at`` and ``map``; the caller closes it after synchronising."""
        return self._devices[device_ordinal].executor.create_reservation(size)

    def granularity(self, device_ordinal: int) -> int:
        """Bytes of which every slot's offset and size are multiples."""
        return self._devices[device_ordinal].executor.granularity

    def stream(self, device_ordinal: int) -> Stream:
        """The stream that orders this device's frees."""
        return self._devices[device_ordinal].stream

    def executor(self, device_ordinal: int) -> StreamExecutor:
        """The device."""
        return self._devices[device_ordinal].executor

    @property
    def device_ordinals(self) -> tuple[int, ...]:
        """The devices it allocates on."""
        return tuple(self._devices)

    def statistics(self, device_ordinal: int) -> AllocatorStatistics:
        """How the device stands now."""
        device = self._devices[device_ordinal]
        with device.lock:
            aliases = [slot for slot in device.slots if isinstance(slot, ReservationAlias)]
            return AllocatorStatistics(
                allocated=device.allocated,
                budget=device.budget,
                active=sum(not record.stale_seqno for record in device.records.values()),
                active_aliases=sum(not alias.stale_seqno for alias in aliases),
                pending=len(device.deferred),
            )

    def close(self) -> None:
        """Completes what is pending and releases everything; the allocator then has no devices.

        Raises:
          DriverError: the driver refused a release; another call tries the rest again.
        """
        for ordinal, device in list(self._devices.items()):
            with device.lock:
                device.close()
            del self._devices[ordinal]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Devices(dict[int, VmmDevice]):
    """Devices by ordinal; an unknown ordinal raises what XLA returns."""

    def __missing__(self, device_ordinal: int) -> VmmDevice:
        raise StatusError(
            StatusCode.NOT_FOUND,
            f"No device with ordinal {device_ordinal} registered in DeviceAddressVmmAllocator",
        )


def _slot(reservation: MemoryReservation, offset: int, size: int) -> DeviceAddress:
    """The range of a slot, or INVALID_ARGUMENT."""
    total = reservation.address.size
    if offset < 0 or size < 0 or offset + size > total:
        raise StatusError(
            StatusCode.INVALID_ARGUMENT,
            f"reservation range is out of bounds: offset={offset}B, size={size}B, reservation_size={total}B",
        )
    return DeviceAddress(reservation.address.opaque + offset, size)
