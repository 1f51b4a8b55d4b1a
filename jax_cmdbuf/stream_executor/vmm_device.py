"""The VMM allocator's state and rules for one device.

Mirrors the per-device half of ``stream_executor/device_address_vmm_allocator.cc``. Invariant: a call that
fails has changed nothing but finished releases that were due; physical memory is charged to the budget from
its creation until its release.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.deferred_operations import BatchLimits, DeferredOperations
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.interface import Stream
from jax_cmdbuf.stream_executor.memory import MemoryAllocation, MemoryReservation
from jax_cmdbuf.stream_executor.vmm_records import (
    AllocationKind,
    AllocationRecord,
    ReservationAlias,
    ReservationSlots,
    Slot,
)

__all__ = ["MAX_STALE_MAPPING_WAITS", "POLL_MICROSECONDS", "VmmDevice"]

# XLA's interval between looks at the timeline while waiting.
POLL_MICROSECONDS = 50.0

# One stale alias of the source and one stale holder of the slot: more waits mean that other threads
# interfere.
MAX_STALE_MAPPING_WAITS = 2


class VmmDevice:
    """Records, slots and deferred operations of one device. Methods expect the lock to be held."""

    def __init__(self, stream: Stream, budget: int | None, limits: BatchLimits) -> None:
        self.lock = threading.Lock()
        self.stream = stream
        self.executor = stream.executor
        self.granularity = self.executor.granularity
        self.budget = budget
        self.allocated = 0
        self.records: dict[int, AllocationRecord] = {}
        self.slots = ReservationSlots()
        self.deferred: DeferredOperations[Slot] = DeferredOperations(stream.enqueue_seqno, limits)

    # Allocation

    def allocate(self, size: int, multi_device: bool) -> DeviceAddress:
        """An ordinary allocation of ``size`` > 0 bytes: the oldest pending free that fits, else fresh."""
        key = (-(-size // self.granularity) * self.granularity, multi_device)
        record = self.deferred.take_reusable(key)
        if record is None:
            return self._with_reclaim(size, lambda: self._create(size, multi_device))
        assert isinstance(record, AllocationRecord)
        if record.address.size != size:
            record.address = DeviceAddress(record.address.opaque, size)
        return record.address

    def take_back_at(
        self, reservation: MemoryReservation, offset: int, size: int, multi_device: bool
    ) -> DeviceAddress | None:
        """Takes back the pending free of exactly this slot, if there is one."""
        record = self.records.get(reservation.address.opaque + offset)
        if (
            record is None
            or not record.stale_seqno
            or record.releasing
            or record.address.size != size
            or record.multi_device is not multi_device
            or record.kind is not AllocationKind.ALLOCATE_AND_MAP
        ):
            return None
        self.deferred.take(record)
        return record.address

    def allocate_at(
        self, address: DeviceAddress, reservation: MemoryReservation, multi_device: bool
    ) -> DeviceAddress:
        """A fresh allocation in a slot of the caller's reservation."""
        return self._with_reclaim(address.size, lambda: self._create_at(address, reservation, multi_device))

    def _create(self, size: int, multi_device: bool) -> DeviceAddress:
        with ExitStack() as undo:
            raw = self._create_physical(size)
            undo.callback(raw.close)
            reservation = self.executor.create_reservation(size)
            undo.callback(reservation.close)
            mapping = reservation.map_to(0, raw.size, raw)
            undo.pop_all()
        address = DeviceAddress(reservation.address.opaque, size)
        key = (round_up(size, self.granularity), multi_device)
        self._track(AllocationRecord(address, mapping, reservation, multi_device, key))
        return address

    def _create_at(
        self, address: DeviceAddress, reservation: MemoryReservation, multi_device: bool
    ) -> DeviceAddress:
        self._free_slot(address)
        with ExitStack() as undo:
            raw = self._create_physical(address.size)
            undo.callback(raw.close)
            mapping = reservation.map_to(address.opaque - reservation.address.opaque, address.size, raw)
            undo.pop_all()
        record = AllocationRecord(address, mapping, None, multi_device, None)
        self._track(record)
        self.slots.add(record)
        return address

    def _track(self, record: AllocationRecord) -> None:
        self.records[record.address.opaque] = record
        self.allocated += record.raw_allocation.size

    def _create_physical(self, size: int) -> MemoryAllocation:
        self._check_budget(round_up(size, self.granularity))
        raw = self.executor.create_allocation(size)
        try:
            # The backend decides the real size, and that is what the budget is charged.
            self._check_budget(raw.size)
        except StatusError:
            raw.close()
            raise
        return raw

    def _check_budget(self, size: int) -> None:
        if self.budget is not None and self.allocated + size > self.budget:
            raise StatusError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"Not enough PA budget: pa_allocated={self.allocated}B, allocation_size={size}B, "
                f"pa_budget={self.budget}B",
            )

    def _free_slot(self, address: DeviceAddress) -> None:
        """Waits for a stale holder of exactly this slot to go."""
        while (slot := self.slots.find(address)) is not None:
            if not slot.stale_seqno:
                raise _already_tracked(address)
            self.release([slot])

    def _with_reclaim(self, size: int, fresh: Callable[[], DeviceAddress]) -> DeviceAddress:
        """Tries ``fresh``; when memory is exhausted, after what is due, then after waiting for enough."""
        try:
            return fresh()
        except StatusError as error:
            if error.code is not StatusCode.RESOURCE_EXHAUSTED:
                raise
        self.deferred.flush()
        completed = self.stream.completed_seqno()
        for record in [r for r in self._pending_frees() if r.stale_seqno <= completed]:
            self._release(record)
        try:
            return fresh()
        except StatusError as error:
            if error.code is not StatusCode.RESOURCE_EXHAUSTED:
                raise
        self.release(self._select_for(round_up(size, self.granularity)))
        return fresh()

    def _pending_frees(self) -> list[AllocationRecord]:
        return [operation for operation in self.deferred if isinstance(operation, AllocationRecord)]

    def _select_for(self, rounded_size: int) -> list[AllocationRecord]:
        """The oldest pending frees that together hold 1.1 times the rounded size, or all of them."""
        wanted = rounded_size + rounded_size // 10
        selected: list[AllocationRecord] = []
        for record in self._pending_frees():
            selected.append(record)
            wanted -= record.raw_allocation.size
            if wanted <= 0:
                break
        return selected

    # Release

    def deallocate(self, address: DeviceAddress) -> None:
        """Defers the free of an active allocator address."""
        record = self.records.get(address.opaque)
        if record is None or record.stale_seqno or record.address.size != address.size:
            raise StatusError(
                StatusCode.NOT_FOUND,
                f"virtual address {address.opaque:#x} is not an active allocator address returned by "
                "Allocate()",
            )
        alias = record.alias
        if alias is not None and not alias.stale_seqno:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"Deallocate() requires the active reservation alias at virtual address "
                f"{alias.address.opaque:#x} ({alias.address.size}B) to be released with UnMap() first",
            )
        self.deferred.defer(record)

    def synchronize(self) -> None:
        """Waits for everything pending now and completes it."""
        self.release(list(self.deferred))

    def release(self, slots: Sequence[Slot]) -> None:
        """Waits until the timeline has passed these operations, then completes those still pending."""
        if not slots:
            return
        selected = [(slot, slot.stale_seqno) for slot in slots]
        self._wait_until(max(seqno for _, seqno in selected))
        for slot, seqno in selected:
            # While the lock was given up another thread may have completed it or taken it back.
            if slot.stale_seqno == seqno and slot in self.deferred:
                self._release(slot)

    def _wait_until(self, seqno: int) -> None:
        self.deferred.flush()
        # The device may need long; other threads go on meanwhile.
        self.lock.release()
        try:
            while self.stream.completed_seqno() < seqno:
                self.stream.wait_microseconds(POLL_MICROSECONDS)
        finally:
            self.lock.acquire()

    def _release(self, slot: Slot) -> None:
        """Releases the handles of a pending operation the stream has passed.

        After a refusal by the driver it stays pending, and the next wait tries the rest again. Of an
        allocation some handles may be gone by then, so nothing may reuse it.
        """
        if isinstance(slot, ReservationAlias):
            slot.close()
            slot.record.alias = None
            self.slots.remove(slot)
        else:
            self.deferred.begin_release(slot)
            if slot.alias is not None:
                # Its unmap was called before the free, so the stream has passed it as well.
                self._release(slot.alias)
            slot.close()
            self.allocated -= slot.raw_allocation.size
            del self.records[slot.address.opaque]
            if slot.kind is AllocationKind.ALLOCATE_AND_MAP:
                self.slots.remove(slot)
        self.deferred.finish_release(slot)

    # Aliases

    def take_back_alias(
        self, source: DeviceAddress, reservation: MemoryReservation, offset: int, size: int
    ) -> DeviceAddress | None:
        """Takes back the pending unmap of this source's alias in exactly this slot, if there is one."""
        record = self.records.get(source.opaque)
        if record is None or record.stale_seqno or record.address.size != source.size:
            return None
        alias = record.alias
        if (
            alias is None
            or not alias.stale_seqno
            or alias.address.size != size
            or alias.address.opaque != reservation.address.opaque + offset
        ):
            return None
        self.deferred.take(alias)
        return alias.address

    def map(
        self, source: DeviceAddress, target: DeviceAddress, reservation: MemoryReservation
    ) -> DeviceAddress:
        """Maps the memory behind an allocator address to a slot of the caller's reservation as well."""
        for _ in range(MAX_STALE_MAPPING_WAITS + 1):
            record = self._map_source(source, target.size)
            holder = self.slots.find(target)
            blocking = self._blocking(record, holder, target)
            if blocking is None:
                if holder is None:
                    self._map_fresh(record, target, reservation)
                else:
                    self.deferred.take(holder)
                return target
            self.release([blocking])
        raise StatusError(
            StatusCode.ABORTED,
            "Map() allocator state changed repeatedly while waiting for stale mappings; retry Map()",
        )

    def _map_source(self, source: DeviceAddress, size: int) -> AllocationRecord:
        record = self.records.get(source.opaque)
        if record is None or record.stale_seqno or record.address.size != source.size:
            raise StatusError(
                StatusCode.NOT_FOUND,
                f"addr {source.opaque:#x} is not an active allocator address; Map() sources must be "
                "allocated by this DeviceAddressVmmAllocator",
            )
        if size > record.raw_allocation.size:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"mapping size must not exceed physical allocation size: mapping_size={size}B, "
                f"allocation_size={record.raw_allocation.size}B",
            )
        return record

    def _blocking(self, record: AllocationRecord, holder: Slot | None, target: DeviceAddress) -> Slot | None:
        """The stale mapping that has to go first, or None when the slot is free or holds the wanted alias."""
        alias = record.alias
        if alias is not None and not alias.stale_seqno:
            raise StatusError(
                StatusCode.ALREADY_EXISTS,
                f"allocator address {record.address.opaque:#x} already has an active reservation mapping "
                f"at {alias.address.opaque:#x}",
            )
        if holder is not None and not holder.stale_seqno:
            raise _already_tracked(target)
        if alias is not None and alias is not holder:
            return alias
        return None if holder is alias else holder

    def _map_fresh(
        self, record: AllocationRecord, target: DeviceAddress, reservation: MemoryReservation
    ) -> None:
        offset = target.opaque - reservation.address.opaque
        record.alias = ReservationAlias(
            record, reservation.map_to(offset, target.size, record.raw_allocation)
        )
        self.slots.add(record.alias)

    def unmap_error(self, target: DeviceAddress) -> StatusError:
        """Why there is no active alias of exactly this range."""
        alias = self.slots.at(target.opaque)
        exact = alias is not None and alias.address.size == target.size
        if not isinstance(alias, ReservationAlias) or (alias.stale_seqno and not exact):
            return StatusError(
                StatusCode.NOT_FOUND,
                f"UnMap() requires an exact active reservation range created by Map(): virtual address "
                f"{target.opaque:#x} ({target.size}B)",
            )
        if alias.stale_seqno:
            return StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"reservation range at virtual address {target.opaque:#x} ({target.size}B) is already "
                "pending UnMap()",
            )
        return StatusError(
            StatusCode.INVALID_ARGUMENT, "UnMap() requires the same full reservation range passed to Map()"
        )

    # End

    def close(self) -> None:
        """Frees what callers never freed, in stream order as well, and completes everything."""
        for record in self.records.values():
            for slot in (record.alias, record):
                if slot is not None and not slot.stale_seqno:
                    self.deferred.defer(slot)
        self.synchronize()


def _already_tracked(address: DeviceAddress) -> StatusError:
    return StatusError(
        StatusCode.ALREADY_EXISTS,
        f"reservation range is already tracked at virtual address {address.opaque:#x}",
    )
