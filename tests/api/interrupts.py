"""Raises KeyboardInterrupt where a signal would: at the n-th line that this package runs in this thread."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import jax_cmdbuf

__all__ = ["interrupted_at", "lines_of"]

_PACKAGE = str(Path(jax_cmdbuf.__file__).parent)


class _Counter:
    def __init__(self, stop: int | None) -> None:
        self.lines, self._stop = 0, stop

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            return None
        # Leaving a `with` block is a line of its own, on which Python runs no handler before the block's end.
        if event == "line" and not linecache.getline(name, frame.f_lineno).lstrip().startswith("with "):
            self.lines += 1
            if self.lines == self._stop:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


@contextmanager
def _tracing(counter: _Counter) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(counter)
    try:
        yield
    finally:
        sys.settrace(before)


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of the package ``work`` runs in this thread."""
    counter = _Counter(None)
    with _tracing(counter):
        work()
    return counter.lines


def interrupted_at(line: int, work: Callable[[], object]) -> None:
    """Does ``work`` until that line, counted from 1; AssertionError if it has fewer."""
    try:
        with _tracing(_Counter(line)):
            work()
    except KeyboardInterrupt:
        return
    raise AssertionError(f"not interrupted: there is no line {line}")
