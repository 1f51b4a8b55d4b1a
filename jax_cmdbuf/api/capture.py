"""Capture sessions: a training or decoding step whose inputs, state and outputs stay where they are.

::

    with jax_cmdbuf.capture(step, state, batch) as session:
        for batch in batches:
            session.run(batch)
        state, loss = session.state(), session.outputs()

Invariant: after any sequence of calls the session holds the values that the same calls of ``step`` in a loop
would have made; what it hands out is the caller's and no later run writes to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import jax

from jax_cmdbuf.api.capture_loop import LoopEngine
from jax_cmdbuf.api.capture_step import CapturedStep, Slot, trace_step
from jax_cmdbuf.errors import CmdbufError, InputError, StatusCode, StatusError

__all__ = ["CaptureSession", "Engine", "capture"]

_RUNTIMES = ("auto", "cuda_graph", "loop")


class Engine(Protocol):
    """What runs the captured step. Leaves are numbered as the step's flattened arguments and results."""

    def write(self, leaf: int, value: Any) -> None:
        """Gives argument leaf ``leaf`` a value of its shape and dtype for all runs to come."""

    def run(self, count: int) -> None:
        """Runs the step ``count`` times, each on the state that the one before left."""

    def read_arguments(self, leaves: range) -> list[jax.Array]:
        """Argument leaves as the next run would see them; arrays of the caller's own."""

    def read_results(self, leaves: range) -> list[jax.Array]:
        """Result leaves of the last run; arrays of the caller's own."""

    def synchronize(self) -> None:
        """Waits for what was enqueued."""

    def close(self) -> None:
        """Releases everything; more calls do nothing."""


class CaptureSession:
    """A captured step. Safe to use from several threads; calls take turns.

    Attributes:
      runtime: "cuda_graph", or "loop" where the step cannot be captured.
      reason: why it is a loop; None for a captured step.
    """

    def __init__(self, step: CapturedStep, engine: Engine, runtime: str, reason: str | None) -> None:
        self.runtime = runtime
        self.reason = reason
        self._step = step
        self._engine = engine
        self._lock = threading.Lock()
        self._runs = 0
        self._failure: BaseException | None = None
        self._closed = False

    def run(self, *batch: Any, **named: Any) -> None:
        """Runs the step once and returns while the device still works.

        Args:
          batch, named: new values of the step's arguments after the state, by position or name; those left
            out keep the values they had.

        Raises:
          InputError: an argument that is not the step's, or of another structure, shape or dtype than at the
            capture; nothing has run.
          StatusError: the session is closed, or this or an earlier run failed.
        """
        with self._lock:
            self._check()
            for slot, values in self._step.bind(batch, named):
                self._write(slot, values)
            self._run(1)

    def run_many(self, batches: Iterable[Any] | None = None, *, steps: int | None = None) -> None:
        """Runs the step once for each batch, or ``steps`` times on the values it has.

        Args:
          batches: for each run a tuple of positional arguments, a dictionary of named ones, or, for a step
            with one argument after the state, that argument.
          steps: how many runs.

        Raises:
          InputError: both or none of the two are given, or as ``run``; the runs before it have been made.
          StatusError: as ``run``.
        """
        if (batches is None) == (steps is None):
            raise InputError("run_many() takes either batches or steps=")
        if batches is None:
            assert steps is not None
            if steps < 0:
                raise InputError(f"steps is {steps}; it counts runs")
            with self._lock:
                self._check()
                self._run(steps)
            return
        for batch in batches:
            if len(self._step.slots) == 1 and self._step.is_argument(batch):
                self.run(batch)
            elif isinstance(batch, Mapping):
                self.run(**batch)
            else:
                self.run(*batch)

    def state(self) -> Any:
        """The state as the next run would take it: independent arrays in the structure of the state."""
        with self._lock:
            self._check()
            step = self._step
            return step.state.treedef.unflatten(self._guarded(self._engine.read_arguments, step.state.leaves))

    def outputs(self) -> Any:
        """What the last run returned besides the state: independent arrays.

        Raises:
          StatusError: FAILED_PRECONDITION before the first run; else as ``run``.
        """
        with self._lock:
            self._check()
            if not self._runs:
                raise StatusError(StatusCode.FAILED_PRECONDITION, "outputs() before the first run()")
            step = self._step
            return step.outputs.unflatten(self._guarded(self._engine.read_results, step.output_leaves))

    def update_state(self, state: Any) -> None:
        """Replaces the state; the values are copied.

        Raises:
          InputError: another structure, shape or dtype than at the capture.
          StatusError: as ``run``.
        """
        with self._lock:
            self._check()
            self._write(self._step.state, self._step.state.read(state))

    def synchronize(self) -> None:
        """Waits until the device has done all runs.

        Raises:
          StatusError: as ``run``.
        """
        with self._lock:
            self._check()
            self._guarded(self._engine.synchronize)

    def close(self) -> None:
        """Waits for the runs and releases everything; more calls do nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<capture of {self._step.name} by {self.runtime}, {self._runs} runs>"

    def _check(self) -> None:
        name = self._step.name
        if self._closed:
            raise StatusError(StatusCode.FAILED_PRECONDITION, f"the capture of {name} is closed")
        if self._failure is not None:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION, f"a run of {name} failed before: {self._failure}"
            ) from self._failure

    def _write(self, slot: Slot, values: list[Any]) -> None:
        for leaf, value in zip(slot.leaves, values, strict=True):
            self._guarded(self._engine.write, leaf, value)

    def _run(self, count: int) -> None:
        self._guarded(self._engine.run, count)
        self._runs += count

    def _guarded(self, act: Any, *arguments: Any) -> Any:
        """Calls the engine; after a failure nobody knows what its buffers hold, so it is not used again."""
        try:
            return act(*arguments)
        except BaseException as error:
            self._failure = error
            raise


def capture(step: Any, state: Any, /, *batch: Any, runtime: str = "auto", **named: Any) -> CaptureSession:
    """Captures a step: a function of a state and a batch that returns the new state first.

    Args:
      step: ``step(state, *batch, **named)`` returns the new state, or a tuple that begins with it; plain or
        jitted. With ``state`` None (or empty) everything it returns is output. Arguments that are to be
        static belong into a ``functools.partial``.
      state: the first state, in any pytree; copied.
      batch, named: examples of the other arguments; they are the values of the first run unless replaced.
      runtime: "cuda_graph": captured; "loop": a loop that calls the jitted step; "auto": captured where that
        can be done, else a loop, with the reason in the session.

    Raises:
      InputError: the step does not return the state's structure, shapes and dtypes, or no such runtime.
      CmdbufError: with "cuda_graph", why the step cannot be captured.
    """
    if runtime not in _RUNTIMES:
        raise InputError(f"runtime is {runtime!r}; it is one of {', '.join(_RUNTIMES)}")
    captured = trace_step(step, state, batch, named)
    reason = "asked for" if runtime == "loop" else None
    if runtime != "loop":
        try:
            from jax_cmdbuf.api.capture_graph import make_graph_engine

            return CaptureSession(captured, make_graph_engine(captured), "cuda_graph", None)
        except CmdbufError as error:
            if runtime == "cuda_graph":
                raise
            reason = str(error)
    return CaptureSession(captured, LoopEngine(captured), "loop", reason)
