"""Handles of virtual memory management, shared by every backend: physical memory, address ranges, mappings.

Mirrors ``stream_executor/memory_{allocation,reservation}.h`` over the driver calls of ``VirtualMemory``.
Invariant: a handle is released exactly once, closing again does nothing, and a close that the driver refuses
can be repeated.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up

__all__ = [
    "DriverError",
    "MemoryAllocation",
    "MemoryReservation",
    "ScopedMapping",
    "VirtualMemory",
    "is_backed_by",
    "retain_allocation",
]

# As XLA's cuda::ToStatus: these two have a status of their own, every other driver error is INTERNAL.
_DRIVER_CODES = {
    "CUDA_ERROR_OUT_OF_MEMORY": StatusCode.RESOURCE_EXHAUSTED,
    "CUDA_ERROR_NOT_FOUND": StatusCode.NOT_FOUND,
}


class DriverError(StatusError):
    """The driver refused a call.

    Attributes:
      call: the driver function, for example ``cuMemMap``.
      error: the driver's name of the error, for example ``CUDA_ERROR_INVALID_VALUE``.
      detail: what the driver says about it, and what was being done.
    """

    def __init__(self, call: str, error: str, detail: str) -> None:
        super().__init__(_DRIVER_CODES.get(error, StatusCode.INTERNAL), f"{call}: {error}: {detail}")
        self.call = call
        self.error = error
        self.detail = detail

    def while_doing(self, what: str) -> DriverError:
        """The same error, which also says what was being done."""
        return DriverError(self.call, self.error, f"{self.detail}, while {what}")


class VirtualMemory(Protocol):
    """The driver's virtual-memory calls of one device. Sizes and addresses are multiples of the granularity.

    Every refused call raises ``DriverError`` and changes nothing. Physical memory is named by the driver's
    handle.
    """

    @property
    def granularity(self) -> int:
        """Bytes of which sizes and addresses are multiples (``cuMemGetAllocationGranularity``)."""

    def reserve_address(self, size: int) -> int:
        """Reserves ``size`` bytes of addresses with nothing behind them (``cuMemAddressReserve``)."""

    def free_address(self, address: int, size: int) -> None:
        """Gives back exactly one reserved range, which holds no mapping (``cuMemAddressFree``)."""

    def create_memory(self, size: int) -> int:
        """Creates physical memory and returns its handle (``cuMemCreate``)."""

    def retain_memory(self, address: int) -> int:
        """The handle of the physical memory mapped at ``address``, held once more.

        Only ``cuMemCreate`` memory has one (``cuMemRetainAllocationHandle``).
        """

    def mapping_at(self, address: int) -> tuple[int, int]:
        """Begin and size in bytes of what ``address`` was mapped or allocated with
        (``cuMemGetAddressRange``).
        """

    def release_memory(self, handle: int) -> None:
        """Gives up a handle; the memory goes when its last mapping does (``cuMemRelease``)."""

    def map(self, address: int, size: int, handle: int, offset: int = 0) -> None:
        """Maps a part of physical memory to free reserved addresses, without access (``cuMemMap``)."""

    def set_access(self, address: int, size: int) -> None:
        """Lets the device read and write whole mappings in this range (``cuMemSetAccess``)."""

    def unmap(self, address: int, size: int) -> None:
        """Removes whole mappings in this range (``cuMemUnmap``)."""


class _Handle:
    """Closable once, usable as a context manager."""

    __slots__ = ()

    def close(self) -> None:
        """Releases what this handle owns; more calls do nothing.

        Raises:
          DriverError: the driver refused; the handle still owns it and close may be called again.
        """
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MemoryAllocation(_Handle):
    """Physical memory. ``size`` is its real size in bytes, a multiple of the granularity.

    It is created here, unless a ``handle`` of existing memory is given, which this object then owns.
    """

    __slots__ = ("_memory", "_open", "handle", "size")

    def __init__(self, memory: VirtualMemory, size: int, handle: int | None = None) -> None:
        self._memory = memory
        self.size = round_up(size, memory.granularity)
        self.handle = memory.create_memory(self.size) if handle is None else handle
        self._open = True

    @property
    def closed(self) -> bool:
        """Whether the memory has been given up."""
        return not self._open

    def close(self) -> None:
        """Gives the memory up; see the base class."""
        if self._open:
            self._memory.release_memory(self.handle)
            self._open = False

    def __repr__(self) -> str:
        return f"MemoryAllocation(handle={self.handle:#x}, size={self.size}, closed={self.closed})"


class MemoryReservation(_Handle):
    """A reserved address range; ``address`` has its real size, a multiple of the granularity."""

    __slots__ = ("_memory", "_open", "address")

    def __init__(self, memory: VirtualMemory, size: int) -> None:
        self._memory = memory
        rounded = round_up(size, memory.granularity)
        self.address = DeviceAddress(memory.reserve_address(rounded), rounded)
        self._open = True

    @property
    def closed(self) -> bool:
        """Whether the range has been given back."""
        return not self._open

    def map_to(
        self, offset: int, size: int, allocation: MemoryAllocation, allocation_offset: int = 0
    ) -> ScopedMapping:
        """Maps ``size`` bytes of ``allocation`` to this range at ``offset`` and lets the device use them.

        Raises:
          StatusError: INVALID_ARGUMENT when the part is not inside this range.
          DriverError: the driver refused; nothing is mapped.
        """
        address = self.address.slice(offset, size)
        with ExitStack() as undo:
            self._memory.map(address.opaque, size, allocation.handle, allocation_offset)
            undo.callback(self._memory.unmap, address.opaque, size)
            self._memory.set_access(address.opaque, size)
            undo.pop_all()
        return ScopedMapping(self._memory, address, self, allocation)

    def close(self) -> None:
        """Gives the range back; see the base class. The driver refuses while it holds mappings."""
        if self._open:
            self._memory.free_address(self.address.opaque, self.address.size)
            self._open = False

    def __repr__(self) -> str:
        return f"MemoryReservation({self.address}, closed={self.closed})"


class ScopedMapping(_Handle):
    """A mapping of ``allocation`` at ``address`` inside ``reservation``; closing unmaps it."""

    __slots__ = ("_memory", "_open", "address", "allocation", "reservation")

    def __init__(
        self,
        memory: VirtualMemory,
        address: DeviceAddress,
        reservation: MemoryReservation,
        allocation: MemoryAllocation,
    ) -> None:
        self._memory = memory
        self.address = address
        self.reservation = reservation
        self.allocation = allocation
        self._open = True

    @property
    def closed(self) -> bool:
        """Whether the mapping is gone."""
        return not self._open

    def close(self) -> None:
        """Unmaps; see the base class."""
        if self._open:
            self._memory.unmap(self.address.opaque, self.address.size)
            self._open = False

    def __repr__(self) -> str:
        return f"ScopedMapping({self.address}, closed={self.closed})"


def retain_allocation(memory: VirtualMemory, address: DeviceAddress) -> MemoryAllocation | None:
    """The physical memory behind what another allocator handed out, held once more.

    Returns:
      None unless ``address`` is one whole piece of virtual memory management: it begins where its mapping
      does, and rounded up to the granularity it is the mapping. A part of a pool is not.
    """
    try:
        begin, size = memory.mapping_at(address.opaque)
        if begin != address.opaque or size != round_up(address.size, memory.granularity):
            return None
        return MemoryAllocation(memory, size, memory.retain_memory(begin))
    except DriverError:
        return None


def is_backed_by(memory: VirtualMemory, address: DeviceAddress, allocation: MemoryAllocation) -> bool:
    """Whether ``address`` leads to this physical memory now; its owner may have exchanged it."""
    try:
        handle = memory.retain_memory(address.opaque)
    except DriverError:
        return False
    memory.release_memory(handle)
    # The driver gives no handle to other memory while ``allocation`` holds this one.
    return handle == allocation.handle
