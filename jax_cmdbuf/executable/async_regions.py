"""Async regions of a thunk list, and the streams that untaken starts keep open.

Mirrors the async part of ``xla/backends/gpu/runtime/command_buffer_conversion_pass.cc``. Invariant: a region
begins at a start, ends at a done, and contains the done of every start in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jax_cmdbuf.executable.thunks import AsyncInfo, Thunk

__all__ = ["OpenStreams", "find_region"]

_Stream = tuple[str, int]


def find_region(thunks: Sequence[Thunk], start: int) -> int:
    """Length of the region that begins at ``thunks[start]``, an async start; 0 if there is none.

    It is the shortest stretch that holds the done of every start in it; a done of something else, or the end
    of the list, means that there is none.
    """
    pending: set[int] = set()
    for position in range(start, len(thunks)):
        thunk = thunks[position]
        if not isinstance(thunk.info, AsyncInfo):
            continue
        identifier = thunk.info.async_execution_id
        if thunk.kind == "kAsyncStart":
            pending.add(identifier)
            continue
        if identifier not in pending:
            return 0
        pending.remove(identifier)
        if not pending:
            return position - start + 1
    return 0


class OpenStreams:
    """Streams on which an async start was left outside and is not done yet.

    Each list has its own; it sees those of the lists around it, which the list's own dones do not close.
    """

    def __init__(self, outer: OpenStreams | None = None) -> None:
        self._outer: dict[int, _Stream | None] = {**outer._outer, **outer._own} if outer else {}
        self._own: dict[int, _Stream | None] = {}

    def start(self, info: AsyncInfo) -> None:
        """A start is left outside."""
        self._own[info.async_execution_id] = info.stream

    def done(self, info: AsyncInfo) -> None:
        """The done of some start is left outside."""
        self._own.pop(info.async_execution_id, None)

    def blocking(self, thunks: Iterable[Thunk]) -> Thunk | None:
        """The first start, at any depth, whose stream is open."""
        if not self._own and not self._outer:
            return None
        streams = {*self._outer.values(), *self._own.values()}
        for start in _starts(thunks):
            if isinstance(start.info, AsyncInfo) and start.info.stream in streams:
                return start
        return None


def _starts(thunks: Iterable[Thunk]) -> Iterator[Thunk]:
    return (inner for thunk in thunks for inner in thunk.walk() if inner.kind == "kAsyncStart")
