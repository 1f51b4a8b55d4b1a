"""Work on shared state that is done one piece after the other, each to its end.

Signal handlers raise (KeyboardInterrupt, for one) between any two instructions of the main thread, and the
garbage collector runs finalizers, which may ask for more work, between any two of any thread. So each piece
has a thread of its own, where no handler runs, and what is asked for from inside a piece waits for its end.
Invariants: a piece that was begun is finished; no two are under way at once; asking never deadlocks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

__all__ = ["UninterruptedWork"]


class UninterruptedWork:
    """Does one piece of work at a time. Safe to use from any thread, from finalizers too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: int | None = None
        self._postponed: deque[Callable[[], None]] = deque()

    @property
    def is_asked_from_inside(self) -> bool:
        """Whether the caller is, or interrupts as a finalizer, the piece that is under way."""
        return self._worker == threading.get_ident()

    def do(self, work: Callable[[], None]) -> None:
        """Does ``work`` and waits for it; from inside a piece: has it done when that piece is finished.

        Args:
          work: what to do. An exception that it raises goes to ``threading.excepthook``, not to the caller.

        Raises:
          KeyboardInterrupt: or whatever a signal handler raises while the caller waits; the work is finished
            all the same, before this is raised.
        """
        if self.is_asked_from_inside:
            self._postponed.append(work)
            return
        thread = threading.Thread(target=self._do, args=(work,), name="jax_cmdbuf")
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or there are too many threads
            self._do(work)
            return
        except BaseException:
            with suppress(RuntimeError):  # it was not started
                thread.join()
            raise
        try:
            thread.join()
        except BaseException:
            thread.join()
            raise

    def _do(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._worker = threading.get_ident()
            try:
                work()
                while self._postponed:
                    self._postponed.popleft()()
            finally:
                self._worker = None
