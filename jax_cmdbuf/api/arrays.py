"""Which simulated buffer stands for which ``jax.Array``, for as long as the array lives.

A buffer is owned by the array object it was made for: it is given back when Python drops the array, when the
user deletes it, or when a call that it was donated to takes it over. Invariants: an array has at most one
buffer per device; dropping an array only notes what is to be freed, because the garbage collector calls from
anywhere, also from inside the allocator; nothing here keeps an array alive.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from jax_cmdbuf.stream_executor.device_address import DeviceAddress

__all__ = ["ArrayBuffers", "Buffers"]

# Device ordinal -> the array's buffer there.
Buffers = Mapping[int, DeviceAddress]


class _Entry(NamedTuple):
    array: weakref.ref[Any]
    buffers: Buffers


class ArrayBuffers:
    """The buffers of all live arrays that were seen. Not thread-safe, except for arrays that die."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._dead: deque[Buffers] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, array: Any) -> Buffers | None:
        """The array's buffers, or None for one that was never seen."""
        entry = self._entries.get(id(array))
        return entry.buffers if entry is not None else None

    def own(self, array: Any, buffers: Buffers) -> None:
        """From now on ``array`` owns ``buffers``."""
        key, entries, dead = id(array), self._entries, self._dead

        def died(_: weakref.ref[Any]) -> None:
            # Both operations are atomic: this may run in the middle of anything, in any thread.
            entry = entries.pop(key, None)
            if entry is not None:
                dead.append(entry.buffers)

        entries[key] = _Entry(weakref.ref(array, died), buffers)

    def disown(self, array: Any) -> Buffers | None:
        """The array's buffers, which are the caller's now; the array dies without them."""
        entry = self._entries.pop(id(array), None)
        return entry.buffers if entry is not None else None

    def collect(self, keep: frozenset[int] = frozenset()) -> list[Buffers]:
        """Buffers to free: of arrays that died, in that order, then of arrays that were deleted.

        Args:
          keep: ``id`` of arrays to leave alone though they are deleted.
        """
        freed = []
        while self._dead:
            freed.append(self._dead.popleft())
        for key, entry in list(self._entries.items()):
            array = entry.array()
            if array is not None and key not in keep and array.is_deleted():
                self._entries.pop(key, None)
                freed.append(entry.buffers)
        return freed
