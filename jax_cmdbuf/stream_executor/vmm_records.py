"""What the VMM allocator remembers: allocations, their aliases, and who holds which slot.

Mirrors ``AllocationRecord`` in ``stream_executor/device_address_vmm_allocator.h``. Invariant: the ranges in a
``ReservationSlots`` never overlap, so an exact hit proves that nothing else is there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import Enum

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.deferred_operations import DeferredOperation, ReuseKey
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import MemoryAllocation, MemoryReservation, ScopedMapping

__all__ = [
    "AdoptedRecord",
    "AllocationKind",
    "AllocationRecord",
    "ReservationAlias",
    "ReservationSlots",
    "Slot",
]


class AllocationKind(Enum):
    """How an allocator address came to be.

    ALLOCATE: in an address range of its own. ALLOCATE_AND_MAP: in a slot of the caller's reservation.
    ADOPTED: another allocator handed it out and frees it.
    """

    ALLOCATE = "allocate"
    ALLOCATE_AND_MAP = "allocate and map"
    ADOPTED = "adopted"


class AllocationRecord(DeferredOperation):
    """One physical allocation and the address it was handed out under.

    Legal moves: active -> stale (deallocate), stale -> active (reuse), stale -> gone (released).

    Attributes:
      kind: how the address came to be.
      address: the allocator address with the size the caller asked for.
      raw_allocation: the physical memory.
      reservation: the allocator's own address range, or None when the address lies in a caller's.
      mapping: of the physical memory at the address.
      multi_device: whether the memory was made for a program on several devices.
      alias: where else it is mapped, active or stale.
    """

    __slots__ = ("address", "alias", "kind", "mapping", "multi_device", "raw_allocation", "reservation")

    def __init__(
        self,
        address: DeviceAddress,
        mapping: ScopedMapping,
        reservation: MemoryReservation | None,
        multi_device: bool,
        reuse_key: ReuseKey | None,
    ) -> None:
        super().__init__(mapping.allocation.size, reuse_key)
        self.kind = AllocationKind.ALLOCATE if reservation else AllocationKind.ALLOCATE_AND_MAP
        self.address = address
        self.raw_allocation: MemoryAllocation = mapping.allocation
        self.reservation = reservation
        self.mapping = mapping
        self.multi_device = multi_device
        self.alias: ReservationAlias | None = None

    @property
    def role(self) -> str:
        """What XLA calls an address like this in its messages."""
        return "allocator"

    def close(self) -> None:
        """Releases the handles, dependants first; after a refusal the rest can be released by another call.

        Raises:
          DriverError: the driver refused a step.
        """
        self.mapping.close()
        if self.reservation is not None:
            self.reservation.close()
        self.raw_allocation.close()


class AdoptedRecord(AllocationRecord):
    """Memory of another allocator, which may give it back at any time; what is held here is its substance.

    It has neither mapping nor reservation of ours.
    """

    __slots__ = ()

    def __init__(self, address: DeviceAddress, allocation: MemoryAllocation) -> None:
        DeferredOperation.__init__(self, 0, None)
        self.kind = AllocationKind.ADOPTED
        self.address = address
        self.raw_allocation = allocation
        self.multi_device = False
        self.alias = None

    def close(self) -> None:
        """Lets go of the memory.

        Raises:
          DriverError: the driver refused.
        """
        self.raw_allocation.close()


class ReservationAlias(DeferredOperation):
    """A second mapping of a record's memory, in a slot of a caller's reservation.

    Legal moves: active -> stale (unmap), stale -> active (mapped again), stale -> gone (released).
    """

    __slots__ = ("address", "mapping", "record")

    def __init__(self, record: AllocationRecord, mapping: ScopedMapping) -> None:
        super().__init__(0, None)
        self.record = record
        self.mapping = mapping
        self.address = mapping.address

    @property
    def role(self) -> str:
        """What XLA calls an address like this in its messages."""
        return "reservation"

    def close(self) -> None:
        """Unmaps.

        Raises:
          DriverError: the driver refused.
        """
        self.mapping.close()


# What can hold a range of a caller's reservation.
Slot = AllocationRecord | ReservationAlias


class ReservationSlots:
    """The ranges of callers' reservations that are mapped, of one device."""

    def __init__(self) -> None:
        self._by_start: dict[int, Slot] = {}
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._by_start.values())

    def add(self, slot: Slot) -> None:
        """Enters a slot whose range is free."""
        self._by_start[slot.address.opaque] = slot
        insort(self._starts, slot.address.opaque)

    def remove(self, slot: Slot) -> None:
        """Removes a slot."""
        start = slot.address.opaque
        del self._by_start[start]
        del self._starts[bisect_left(self._starts, start)]

    def at(self, start: int) -> Slot | None:
        """The slot that begins at this address."""
        return self._by_start.get(start)

    def find(self, address: DeviceAddress) -> Slot | None:
        """The slot of exactly this range, or None when the range is free.

        Raises:
          StatusError: FAILED_PRECONDITION when the range overlaps a slot without being it.
        """
        slot = self._by_start.get(address.opaque)
        if slot is not None and slot.address.size == address.size:
            return slot
        index = bisect_left(self._starts, address.opaque)
        for start in self._starts[max(index - 1, 0) : index + 1]:
            other = self._by_start[start]
            if other.address.overlaps(address):
                raise StatusError(
                    StatusCode.FAILED_PRECONDITION,
                    f"reservation range at {address.opaque:#x} ({address.size}B) partially overlaps "
                    f"{'stale' if other.stale_seqno else 'active'} {other.role} range at "
                    f"{other.address.opaque:#x} ({other.address.size}B); reservation mappings must be "
                    "managed with the same full range",
                )
        return None
