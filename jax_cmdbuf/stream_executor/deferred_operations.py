"""Frees and unmaps that wait for the stream: their order, their numbers, and which may be taken back.

Mirrors the pending-deallocation queue of ``stream_executor/device_address_vmm_allocator.cc``. Invariant: an
operation is in the queue exactly while its ``stale_seqno`` is not 0, the queue is in the order of the calls,
and sequence numbers never fall along it. Not thread-safe: the allocator's device lock guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["XLA_BATCH", "BatchLimits", "DeferredOperation", "DeferredOperations", "ReuseKey"]

# Rounded size in bytes, and whether the memory serves a program on several devices.
ReuseKey = tuple[int, bool]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much may be deferred behind one timeline write. One entry: every operation has its own write.

    Attributes:
      entries: most operations in a batch.
      bytes: most physical memory, in bytes, whose release one batch holds up.
    """

    entries: int
    bytes: int


# XLA's limits.
XLA_BATCH = BatchLimits(entries=64, bytes=64 << 20)


class DeferredOperation:
    """A free or an unmap that can be pending.

    Attributes:
      stale_seqno: 0 while the thing is active, else the sequence number its release waits for.
      reclaimable_bytes: physical memory that its completion releases; 0 for an unmap.
      reuse_key: what an allocation must ask for to get this memory back, or None when no allocation may.
      releasing: its handles are being closed, so nothing may take it back any more.
    """

    __slots__ = ("reclaimable_bytes", "releasing", "reuse_key", "stale_seqno")

    def __init__(self, reclaimable_bytes: int, reuse_key: ReuseKey | None) -> None:
        self.stale_seqno = 0
        self.reclaimable_bytes = reclaimable_bytes
        self.reuse_key = reuse_key
        self.releasing = False


Operation = TypeVar("Operation", bound=DeferredOperation)


class DeferredOperations(Generic[Operation]):
    """The queue of one device."""

    def __init__(self, enqueue_seqno: Callable[[int], None], limits: BatchLimits) -> None:
        self._enqueue_seqno = enqueue_seqno
        self._limits = limits
        # A dictionary is a queue with removal from the middle. The reuse queues hold the same operations in
        # the same order by key, so that "the oldest that fits" needs no scan.
        self._queue: dict[Operation, None] = {}
        self._reusable: dict[ReuseKey, deque[Operation]] = {}
        self._next_seqno = 1
        self._open_seqno = 0
        self._open_entries = 0
        self._open_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Operation]:
        """The operations, oldest first."""
        return iter(self._queue)

    def __contains__(self, operation: Operation) -> bool:
        return operation in self._queue

    def defer(self, operation: Operation) -> None:
        """Appends an active operation and gives it its sequence number.

        Raises:
          StatusError: the timeline write of an earlier, full batch failed; nothing has changed.
        """
        size = operation.reclaimable_bytes
        if self._open_seqno:
            # XLA's rule: an unmap releases no memory, so it never fills the byte limit, and a batch of unmaps
            # alone takes any free.
            held = self._open_bytes
            if self._open_entries >= self._limits.entries or (
                size and held and held + size > self._limits.bytes
            ):
                self.flush()
        if not self._open_seqno:
            self._open_seqno = self._next_seqno
            self._next_seqno += 1
        self._open_entries += 1
        self._open_bytes += size
        operation.stale_seqno = self._open_seqno
        self._queue[operation] = None
        key = operation.reuse_key
        if key is not None:
            waiting = self._reusable.get(key)
            if waiting is None:
                waiting = self._reusable[key] = deque()
            waiting.append(operation)

    def oldest_reusable(self, key: ReuseKey) -> Operation | None:
        """The operation that ``take_reusable`` would take."""
        waiting = self._reusable.get(key)
        return waiting[0] if waiting else None

    def take_reusable(self, key: ReuseKey) -> Operation | None:
        """Takes the oldest operation with this key back out of the queue; it is active again."""
        waiting = self._reusable.get(key)
        if not waiting:
            return None
        operation = waiting.popleft()
        self._forget(operation)
        return operation

    def take(self, operation: Operation) -> None:
        """Takes this operation back out of the queue; it is active again."""
        if operation.reuse_key is not None:
            self._reusable[operation.reuse_key].remove(operation)
        self._forget(operation)

    def begin_release(self, operation: Operation) -> None:
        """From now on nothing takes this operation back; it stays queued until ``finish_release``."""
        if not operation.releasing:
            operation.releasing = True
            if operation.reuse_key is not None:
                # Releases go from the oldest on, so this is the front in all but the rarest case.
                self._reusable[operation.reuse_key].remove(operation)

    def finish_release(self, operation: Operation) -> None:
        """Drops an operation whose release is complete."""
        self._forget(operation)

    def flush(self) -> None:
        """Enqueues the timeline write of the open batch, if there is one.

        Raises:
          StatusError: the write failed; the batch stays open.
        """
        if self._open_seqno:
            self._enqueue_seqno(self._open_seqno)
            self._close_batch()

    def _close_batch(self) -> None:
        self._open_seqno = self._open_entries = self._open_bytes = 0

    def _forget(self, operation: Operation) -> None:
        del self._queue[operation]
        if operation.stale_seqno == self._open_seqno:
            self._open_entries -= 1
            self._open_bytes -= operation.reclaimable_bytes
            if not self._open_entries:
                # No one waits for this number any more; numbers may have gaps but never fall.
                self._close_batch()
        operation.stale_seqno = 0
