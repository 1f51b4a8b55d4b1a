"""The tables one execution works with: the address of every allocation, and which addresses are persistent.

Mirrors ``xla/service/gpu/buffer_allocations.h`` and the optional ``persistent_alloc_indices`` of
``xla/backends/gpu/runtime/thunk.h``. Invariant: both are immutable, so an execution can never change what the
owner of the results will free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NoReturn

from jax_cmdbuf.executable.buffers import BufferAllocationSlice
from jax_cmdbuf.stream_executor.device_address import DeviceAddress

__all__ = ["BufferAllocations", "PersistentSet", "select"]


def select(indices: Sequence[int]) -> Callable[[tuple[DeviceAddress, ...]], tuple[DeviceAddress, ...]]:
    """A fast function that picks these positions of a table's addresses."""
    if len(indices) >= 2:
        return itemgetter(*indices)
    return lambda addresses: tuple(addresses[index] for index in indices)


class BufferAllocations:
    """One device address per allocation index.

    Attributes:
      addresses: the addresses; position = allocation index; null where nothing is allocated.
    """

    __slots__ = ("addresses",)

    def __init__(self, addresses: Iterable[DeviceAddress]) -> None:
        self.addresses = tuple(addresses)

    def __len__(self) -> int:
        return len(self.addresses)

    def __getitem__(self, index: int) -> DeviceAddress:
        return self.addresses[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BufferAllocations):
            return NotImplemented
        return self.addresses == other.addresses

    def __hash__(self) -> int:
        return hash(self.addresses)

    def __repr__(self) -> str:
        return f"BufferAllocations({list(self.addresses)!r})"

    def slice(self, slice_: BufferAllocationSlice) -> DeviceAddress:
        """The address of a slice of an allocation."""
        return self.addresses[slice_.allocation].slice(slice_.offset, slice_.size)

    def with_addresses(self, replacements: Mapping[int, DeviceAddress]) -> BufferAllocations:
        """A copy in which the given indices have other addresses; this table stays as it is."""
        if not replacements:
            return self
        addresses = list(self.addresses)
        for index, address in replacements.items():
            addresses[index] = address
        return BufferAllocations(addresses)


class PersistentSet:
    """XLA's optional list of persistent allocation indices: unknown, or a set.

    Unknown (still profiling) is not empty (nothing is persistent), so its truth value is undefined on
    purpose: ask ``known``.

    Attributes:
      indices: the persistent indices, ascending, or None while unknown.
    """

    __slots__ = ("_members", "indices")

    UNKNOWN: PersistentSet

    def __init__(self, indices: Iterable[int] | None) -> None:
        self.indices = None if indices is None else tuple(sorted(set(indices)))
        self._members = frozenset(self.indices or ())

    @property
    def known(self) -> bool:
        """Whether the set is known; while it is not, command buffers run as plain thunks."""
        return self.indices is not None

    def dynamic(self, used: Iterable[int]) -> tuple[int, ...]:
        """Those of ``used`` that are not persistent, ascending; all of them while the set is unknown."""
        return tuple(sorted(index for index in used if index not in self._members))

    def __contains__(self, index: object) -> bool:
        return index in self._members

    def __bool__(self) -> NoReturn:
        raise TypeError("a PersistentSet has no truth value: unknown is not empty; use .known or .indices")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PersistentSet):
            return NotImplemented
        return self.indices == other.indices

    def __hash__(self) -> int:
        return hash(self.indices)

    def __repr__(self) -> str:
        return "PersistentSet.UNKNOWN" if self.indices is None else f"PersistentSet({list(self.indices)})"


PersistentSet.UNKNOWN = PersistentSet(None)
