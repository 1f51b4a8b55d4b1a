"""The simulated driver's virtual memory: physical allocations, reserved ranges and a page table, in Python.

Stands for the CUDA driver's ``cuMem*`` calls; what it refuses, with which error, and what a call costs was
seen on an H200 with driver 580.159. Invariant: whatever the driver refuses raises ``DriverError`` with the
driver's error and changes nothing; the same calls always give the same addresses, handles and costs. Handles
that never were or were given up crash or confuse the real driver; here they are refused.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import DriverError

__all__ = ["COSTS_H200", "GRANULARITY", "MappedRange", "SimulatedDriver", "SimulatedVirtualMemory"]

GRANULARITY = 2 << 20


class Cost(NamedTuple):
    """What a driver function costs in microseconds: per call, or per mapping it takes; and per GiB."""

    call: float
    gibibyte: float = 0.0


NO_COST = Cost(0.0)

# Medians on an H200, from sizes of 2 MiB to 1 GiB.
COSTS_H200: Mapping[str, Cost] = {
    "cuMemAddressReserve": Cost(5.4),
    "cuMemAddressFree": Cost(1.3),
    "cuMemCreate": Cost(14.0, 2.7),
    "cuMemRelease": Cost(10.6, 560.0),
    "cuMemMap": Cost(2.1),
    "cuMemSetAccess": Cost(25.0, 29.0),
    "cuMemUnmap": Cost(16.5, 11.0),
    "cuStreamWriteValue64": Cost(1.6),
}

FIRST_ADDRESS = 0x7000_0000_0000
FIRST_HANDLE = 0x1000


class SimulatedDriver:
    """What all simulated calls of a device share: counts, costs, and failures to inject.

    Attributes:
      calls: how often each driver function was called, refused calls included.
      microseconds: what the calls have cost so far.
    """

    def __init__(self, costs: Mapping[str, Cost] = COSTS_H200) -> None:
        self.calls: Counter[str] = Counter()
        self.microseconds = 0.0
        self._costs = costs
        self._failures: dict[tuple[str, int], str] = {}

    def fail(self, call: str, nth: int = 1, error: str = "CUDA_ERROR_UNKNOWN") -> None:
        """Makes the ``nth`` call of driver function ``call`` from now on end with ``error``."""
        self._failures[call, self.calls[call] + nth] = error

    def fail_nothing(self) -> None:
        """Forgets the injected failures that no call has met yet."""
        self._failures.clear()

    def enter(self, call: str, size: int = 0) -> None:
        """Counts and charges a call about ``size`` bytes.

        Raises:
          DriverError: a failure was injected.
        """
        self.calls[call] += 1
        self.charge(call, 1, size)
        if self._failures and (error := self._failures.pop((call, self.calls[call]), None)):
            raise DriverError(call, error, f"injected into call {self.calls[call]}")

    def charge(self, call: str, times: int, size: int = 0) -> None:
        """Adds what ``times`` calls about ``size`` bytes in all cost."""
        cost = self._costs.get(call, NO_COST)
        self.microseconds += cost.call * times + cost.gibibyte * size / (1 << 30)


@dataclass(slots=True)
class _Physical:
    size: int
    mappings: int = 0
    handles: int = 1


@dataclass(slots=True)
class _Mapping:
    address: int
    size: int
    target: MappedRange
    accessible: bool = False


class MappedRange(NamedTuple):
    """Where an address range leads: ``offset`` bytes into the physical memory ``handle``."""

    handle: int
    offset: int


class SimulatedVirtualMemory:
    """``VirtualMemory`` of one simulated device.

    Attributes:
      granularity: bytes of which everything is a multiple.
      total_bytes: physical memory of the device.
      used_bytes: physical memory that exists, mapped or held by a handle.
      needless_unmaps: unmap calls that hit no mapping; the driver accepts them, a correct program makes none.
    """

    def __init__(self, driver: SimulatedDriver, total_bytes: int, granularity: int = GRANULARITY) -> None:
        self.granularity = granularity
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self.needless_unmaps = 0
        self._driver = driver
        self._lock = threading.Lock()
        self._next_address = round_up(FIRST_ADDRESS, granularity)
        self._next_handle = FIRST_HANDLE
        self._chosen: deque[int] = deque()
        self._reserved: dict[int, int] = {}
        self._reserved_starts: list[int] = []
        self._physical: dict[int, _Physical] = {}
        self._mappings: dict[int, _Mapping] = {}
        self._mapping_starts: list[int] = []

    def choose_addresses(self, *addresses: int) -> None:
        """Makes the next reservations begin at these addresses, one each."""
        self._chosen.extend(addresses)

    def choose_nothing(self) -> None:
        """Forgets chosen addresses that were not used; the device chooses again."""
        self._chosen.clear()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is reserved, mapped or held."""
        return not (self._reserved or self._physical or self._mappings)

    @property
    def reservation_count(self) -> int:
        """Reserved ranges that were not given back."""
        return len(self._reserved)

    @property
    def mapping_count(self) -> int:
        """Mappings that were not removed."""
        return len(self._mappings)

    def reserve_address(self, size: int) -> int:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemAddressReserve")
            self._check_size("cuMemAddressReserve", size)
            address = self._chosen[0] if self._chosen else self._free_address_for(size)
            taken = self._reservation_over(address, size)
            if address % self.granularity or taken is not None:
                raise _invalid(
                    "cuMemAddressReserve", f"{size} bytes at {address:#x} are not free or not aligned"
                )
            if self._chosen:
                self._chosen.popleft()
            self._reserved[address] = size
            insort(self._reserved_starts, address)
            return address

    def free_address(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemAddressFree")
            if self._reserved.get(address) != size:
                raise _invalid("cuMemAddressFree", f"{size} bytes at {address:#x} are not one reserved range")
            if self._mappings_over(address, size):
                raise _invalid("cuMemAddressFree", f"the range at {address:#x} still holds mappings")
            del self._reserved[address]
            self._reserved_starts.remove(address)

    def create_memory(self, size: int) -> int:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemCreate", size)
            self._check_size("cuMemCreate", size)
            if self.used_bytes + size > self.total_bytes:
                raise DriverError(
                    "cuMemCreate",
                    "CUDA_ERROR_OUT_OF_MEMORY",
                    f"{size} bytes asked for, {self.used_bytes} of {self.total_bytes} in use",
                )
            handle = self._next_handle
            self._next_handle += 1
            self._physical[handle] = _Physical(size)
            self.used_bytes += size
            return handle

    def retain_memory(self, address: int) -> int:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemRetainAllocationHandle")
            found = self._mappings_over(address, 1)
            if not found:
                raise _invalid("cuMemRetainAllocationHandle", f"nothing is mapped at {address:#x}")
            handle = found[0].target.handle
            physical = self._physical[handle]
            # A handle that was given up is a good one again.
            physical.handles += 1
            return handle

    def mapping_at(self, address: int) -> tuple[int, int]:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemGetAddressRange")
            found = self._mappings_over(address, 1)
            if not found:
                raise _invalid("cuMemGetAddressRange", f"nothing is mapped at {address:#x}")
            return found[0].address, found[0].size

    def release_memory(self, handle: int) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemRelease")
            physical = self._open_physical("cuMemRelease", handle)
            self._driver.charge("cuMemRelease", 0, physical.size)
            physical.handles -= 1
            self._drop_unused(handle)

    def map(self, address: int, size: int, handle: int, offset: int = 0) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemMap")
            physical = self._open_physical("cuMemMap", handle)
            if size <= 0:
                raise _invalid("cuMemMap", f"{size} bytes")
            if offset or size != physical.size:
                raise DriverError(
                    "cuMemMap",
                    "CUDA_ERROR_NOT_SUPPORTED",
                    f"{size} bytes at offset {offset} of {physical.size}: only whole memory can be mapped",
                )
            if address % self.granularity:
                raise _invalid("cuMemMap", f"{address:#x} is not a multiple of {self.granularity}")
            if not self._is_reserved(address, size):
                raise _invalid("cuMemMap", f"{size} bytes at {address:#x} are not reserved")
            if self._mappings_over(address, size):
                raise _invalid("cuMemMap", f"{size} bytes at {address:#x} are mapped already")
            self._mappings[address] = _Mapping(address, size, MappedRange(handle, offset))
            insort(self._mapping_starts, address)
            physical.mappings += 1

    def set_access(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemSetAccess", size)
            found = self._whole_mappings("cuMemSetAccess", address, size)
            if size <= 0 or sum(mapping.size for mapping in found) != size:
                raise _invalid("cuMemSetAccess", f"{size} bytes at {address:#x} are not mapped throughout")
            self._driver.charge("cuMemSetAccess", len(found) - 1)
            for mapping in found:
                mapping.accessible = True

    def unmap(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemUnmap", size)
            if not self._is_reserved(address, size):
                raise _invalid("cuMemUnmap", f"{size} bytes at {address:#x} are not reserved")
            found = self._whole_mappings("cuMemUnmap", address, size)
            if not found:
                self.needless_unmaps += 1
            self._driver.charge("cuMemUnmap", max(len(found) - 1, 0))
            for mapping in found:
                del self._mappings[mapping.address]
                self._mapping_starts.remove(mapping.address)
                self._physical[mapping.target.handle].mappings -= 1
                self._drop_unused(mapping.target.handle)

    def resolve(self, address: DeviceAddress) -> MappedRange | None:
        """Where a range leads, or None when a byte of it is not mapped, not accessible or elsewhere.

        A range over several mappings must lead to consecutive bytes of one physical memory.
        """
        start, size = address.opaque, address.size
        mapping = self._mappings.get(start)
        if mapping is not None and size <= mapping.size:
            return mapping.target if mapping.accessible else None
        index = bisect_right(self._mapping_starts, start) - 1
        if index < 0:
            return None
        mapping = self._mappings[self._mapping_starts[index]]
        if not mapping.accessible or start >= mapping.address + mapping.size:
            return None
        found = MappedRange(mapping.target.handle, mapping.target.offset + start - mapping.address)
        while mapping.address + mapping.size < start + size:
            expected = MappedRange(found.handle, mapping.target.offset + mapping.size)
            follower = self._mappings.get(mapping.address + mapping.size)
            if follower is None or not follower.accessible or follower.target != expected:
                return None
            mapping = follower
        return found

    def _check_size(self, call: str, size: int) -> None:
        if size <= 0 or size % self.granularity:
            raise _invalid(call, f"{size} bytes are not a positive multiple of {self.granularity}")

    def _open_physical(self, call: str, handle: int) -> _Physical:
        physical = self._physical.get(handle)
        if physical is None or not physical.handles:
            raise _invalid(call, f"{handle:#x} is not a handle of physical memory")
        return physical

    def _drop_unused(self, handle: int) -> None:
        physical = self._physical[handle]
        if not (physical.handles or physical.mappings):
            del self._physical[handle]
            self.used_bytes -= physical.size

    def _free_address_for(self, size: int) -> int:
        while (start := self._reservation_over(self._next_address, size)) is not None:
            self._next_address = start + self._reserved[start]
        address = self._next_address
        self._next_address += size
        return address

    def _reservation_over(self, address: int, size: int) -> int | None:
        """Where a reserved range begins that has a byte of this range, or None."""
        index = bisect_right(self._reserved_starts, address + size - 1) - 1
        if index < 0:
            return None
        start = self._reserved_starts[index]
        return start if start + self._reserved[start] > address else None

    def _is_reserved(self, address: int, size: int) -> bool:
        """Whether every byte is reserved; neighbouring reservations count as one, as on hardware."""
        end = address + size
        while address < end:
            start = self._reservation_over(address, 1)
            if start is None:
                return False
            address = start + self._reserved[start]
        return True

    def _mappings_over(self, address: int, size: int) -> list[_Mapping]:
        """The mappings that have a byte of this range, in ascending order."""
        found = []
        index = bisect_right(self._mapping_starts, address + size - 1) - 1
        while index >= 0:
            mapping = self._mappings[self._mapping_starts[index]]
            if mapping.address + mapping.size <= address:
                break
            found.append(mapping)
            index -= 1
        return found[::-1]

    def _whole_mappings(self, call: str, address: int, size: int) -> list[_Mapping]:
        """The mappings in this range, none of which reaches out of it."""
        found = self._mappings_over(address, size)
        if found and (found[0].address < address or found[-1].address + found[-1].size > address + size):
            raise _invalid(call, f"{size} bytes at {address:#x} hold only a part of a mapping")
        return found


def _invalid(call: str, detail: str) -> DriverError:
    return DriverError(call, "CUDA_ERROR_INVALID_VALUE", detail)
