"""How the calls of a function pass their arguments, and when they run.

Invariant: notes keep no array and no large host value alive, and touch no value.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jax_cmdbuf.report.run_model import ArgumentUse

__all__ = ["CallNotes", "Producers"]

_MOST_CALLS = 4096


def _nobody() -> None:
    return None


# Gives the object while it lives.
_Reference = Callable[[], Any]


def _reference(value: Any) -> _Reference:
    try:
        return weakref.ref(value)
    except TypeError:  # a number, which costs nothing to keep
        return lambda: value


@dataclass(slots=True)
class _Counts:
    """The fields of ``ArgumentUse``, while they are counted; ``before`` is the call's before."""

    calls: int = 0
    host: int = 0
    host_kept: int = 0
    kept: int = 0
    fed_back: int = 0
    donated: bool = False
    kind: str = ""
    result: str = ""
    same_as: str = ""
    source: str = ""
    before: _Reference = _nobody


class Producers:
    """Which function gave which array, for as long as the array lives. Safe to use from any thread."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}

    def add(self, array: Any, name: str) -> None:
        """``array`` is a result of the function ``name``."""
        key, names = id(array), self._names
        # Runs in the middle of anything; one operation, which is atomic.
        names[key] = (weakref.ref(array, lambda _: names.pop(key, None)), name)

    def of(self, array: Any) -> str:
        """The function's name, or ""."""
        reference, name = self._names.get(id(array), (None, ""))
        return name if reference is not None and reference() is array else ""


class CallNotes:
    """Of one signature of a function.

    Attributes:
      times: (begin, duration) of the last calls, in nanoseconds of the caller's clock.
      count: all calls.
    """

    def __init__(self, producers: Producers) -> None:
        """Without calls.

        Args:
          producers: knows the results of all functions.
        """
        self._producers = producers
        self.times: deque[tuple[int, int]] = deque(maxlen=_MOST_CALLS)
        self.count = 0
        self._counts: dict[str, _Counts] = {}
        self._results: dict[int, tuple[_Reference, str]] = {}

    def add(
        self,
        arguments: Sequence[tuple[str, Any, bool]],
        results: Sequence[tuple[str, Any]],
        began: int,
        took: int,
    ) -> None:
        """One call has returned.

        Args:
          arguments: (path, value, whether the function donates it).
          results: (path, array) of the result's leaves.
          began, took: in nanoseconds.
        """
        self.count += 1
        self.times.append((began, took))
        first: dict[int, str] = {}
        for path, value, donated in arguments:
            self._add_argument(path, value, donated, first)
        self._results = {id(value): (_reference(value), path) for path, value in results}

    def _add_argument(self, path: str, value: Any, donated: bool, first: dict[int, str]) -> None:
        counts = self._counts.setdefault(path, _Counts())
        counts.calls += 1
        counts.donated = donated
        is_same = counts.before() is value
        counts.before = _reference(value)
        if not isinstance(value, jax.Array):
            counts.host += 1
            counts.host_kept += is_same
            counts.kind = _kind(value)
            return
        counts.kept += is_same
        reference, result = self._results.get(id(value), (_nobody, ""))
        if reference() is value:
            counts.fed_back += 1
            counts.result = result
        else:
            counts.source = self._producers.of(value)
        other = first.setdefault(id(value), path)
        if other != path:
            counts.same_as = other
            self._counts[other].same_as = path

    def uses(self) -> dict[str, ArgumentUse]:
        """Path -> how calls passed it."""
        return {path: _use(counts) for path, counts in list(self._counts.items())}


def _use(counts: _Counts) -> ArgumentUse:
    return ArgumentUse(
        counts.calls,
        counts.host,
        counts.host_kept,
        counts.kept,
        counts.fed_back,
        counts.donated,
        counts.kind,
        counts.result,
        counts.same_as,
        counts.source,
    )


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
