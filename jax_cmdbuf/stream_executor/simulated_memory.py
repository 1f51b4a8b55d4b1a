"""The simulated driver's virtual memory: physical allocations, reserved ranges and a page table, in Python.

Stands for the CUDA driver's ``cuMem*`` calls. Invariant: whatever the driver would refuse raises
``DriverError`` with the driver's error and changes nothing; the same calls always give the same addresses,
handles and costs.
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

# Microseconds per call on an H200.
COSTS_H200: Mapping[str, float] = {
    "cuMemMap": 3.5,
    "cuMemSetAccess": 35.0,
    "cuMemUnmap": 22.0,
}

FIRST_ADDRESS = 0x7000_0000_0000
FIRST_HANDLE = 0x1000


class SimulatedDriver:
    """What all simulated calls of a device share: counts, costs, and failures to inject.

    Attributes:
      calls: how often each driver function was called, refused calls included.
      microseconds: what the calls have cost so far.
      fault: the error every further call ends with, once work on the device has gone wrong.
    """

    def __init__(self, costs: Mapping[str, float] = COSTS_H200) -> None:
        self.calls: Counter[str] = Counter()
        self.microseconds = 0.0
        self.fault: DriverError | None = None
        self._costs = costs
        self._failures: dict[tuple[str, int], str] = {}

    def fail(self, call: str, nth: int = 1, error: str = "CUDA_ERROR_UNKNOWN") -> None:
        """Makes the ``nth`` call of driver function ``call`` from now on end with ``error``."""
        self._failures[call, self.calls[call] + nth] = error

    def enter(self, call: str) -> None:
        """Counts and charges a call.

        Raises:
          DriverError: a failure was injected, or the device has faulted.
        """
        self.calls[call] += 1
        self.microseconds += self._costs.get(call, 0.0)
        if self.fault is not None:
            raise DriverError(call, self.fault.error, f"the device has faulted before: {self.fault.message}")
        if self._failures and (error := self._failures.pop((call, self.calls[call]), None)):
            raise DriverError(call, error, f"injected into call {self.calls[call]}")


@dataclass(slots=True)
class _Physical:
    size: int
    mappings: int = 0
    released: bool = False


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
    """``VirtualMemory`` of one simulated device."""

    def __init__(self, driver: SimulatedDriver, total_bytes: int, granularity: int = GRANULARITY) -> None:
        self.granularity = granularity
        self.total_bytes = total_bytes
        self.used_bytes = 0
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
            self._driver.enter("cuMemCreate")
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

    def release_memory(self, handle: int) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemRelease")
            physical = self._open_physical("cuMemRelease", handle)
            physical.released = True
            self._drop_unused(handle)

    def map(self, address: int, size: int, handle: int, offset: int = 0) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemMap")
            self._check_size("cuMemMap", size)
            physical = self._open_physical("cuMemMap", handle)
            if offset < 0 or offset % self.granularity or offset + size > physical.size:
                raise _invalid(
                    "cuMemMap", f"{size} bytes at offset {offset} of {physical.size} bytes of memory"
                )
            start = self._reservation_over(address, size)
            inside = (
                start is not None and address >= start and address + size <= start + self._reserved[start]
            )
            if address % self.granularity or not inside:
                raise _invalid("cuMemMap", f"{size} bytes at {address:#x} are not inside one reserved range")
            if self._mappings_over(address, size):
                raise _invalid("cuMemMap", f"{size} bytes at {address:#x} are mapped already")
            self._mappings[address] = _Mapping(address, size, MappedRange(handle, offset))
            insort(self._mapping_starts, address)
            physical.mappings += 1

    def set_access(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemSetAccess")
            for mapping in self._whole_mappings("cuMemSetAccess", address, size):
                mapping.accessible = True

    def unmap(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        with self._lock:
            self._driver.enter("cuMemUnmap")
            for mapping in self._whole_mappings("cuMemUnmap", address, size):
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
        if physical is None or physical.released:
            raise _invalid(call, f"{handle:#x} is not a handle of physical memory")
        return physical

    def _drop_unused(self, handle: int) -> None:
        physical = self._physical[handle]
        if physical.released and not physical.mappings:
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
        """The mappings that together are exactly this range."""
        found = self._mappings_over(address, size)
        covered = sum(mapping.size for mapping in found)
        if not found or found[0].address < address or covered != size:
            raise _invalid(call, f"{size} bytes at {address:#x} are not a sequence of whole mappings")
        return found


def _invalid(call: str, detail: str) -> DriverError:
    return DriverError(call, "CUDA_ERROR_INVALID_VALUE", detail)
