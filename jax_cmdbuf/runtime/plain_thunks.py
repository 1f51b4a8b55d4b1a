"""Running a thunk by itself, outside command buffers.

On this seam a thunk's work is what its command would record, so it is submitted as a command buffer of one
command.
Invariant: a thunk runs with the addresses of the table it is given, never with earlier ones.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.events import NO_SINK
from jax_cmdbuf.executable.thunks import Thunk
from jax_cmdbuf.runtime.buffer_allocations import select
from jax_cmdbuf.runtime.command_buffer_thunk import ExecuteParams
from jax_cmdbuf.runtime.commands import command_list
from jax_cmdbuf.runtime.control_flow import CUSTOM_CALL
from jax_cmdbuf.runtime.recording import Recording
from jax_cmdbuf.runtime.steps import ControlFlow
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress

__all__ = ["PlainThunks"]


class _Single:
    """One thunk on one device."""

    def __init__(self, thunk: Thunk, executor: se.StreamExecutor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._commands = command_list((thunk,))
        self._select = select(tuple(sorted(self._commands.allocations)))
        self._recording: Recording | None = None
        self._recorded_with: tuple[DeviceAddress, ...] = ()

    def run(self, params: ExecuteParams) -> None:
        """Submits the thunk's command, recorded again where its addresses changed."""
        with self._lock:
            current = self._select(params.table.addresses)
            try:
                recording = self._record(params, current)
                recording.buffer.submit(params.stream)
            except BaseException:
                # It may be half recorded.
                self._forget()
                raise

    def _record(self, params: ExecuteParams, current: tuple[DeviceAddress, ...]) -> Recording:
        if self._recording is None:
            self._recording = Recording(self._commands, self._executor)
            self._recording.create(params.table, NO_SINK)
        elif current != self._recorded_with:
            self._recording.update(params.table, None, NO_SINK)
        self._recorded_with = current
        return self._recording

    def _forget(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.close()

    def close(self) -> None:
        """Releases the device's command buffer."""
        with self._lock:
            self._forget()


class PlainThunks:
    """The plain thunks of one program, on all its devices."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._singles: dict[tuple[int, se.StreamExecutor], _Single] = {}

    def runner(
        self, control_flow: ControlFlow, failure: StatusError | None, failing_call: int = 1
    ) -> _Runner:
        """A runner for one execution.

        Args:
          control_flow: decides loops and branches.
          failure: what a custom call ends with, or None.
          failing_call: which one, counted from 1 as they run.
        """
        return _Runner(self, control_flow, failure, failing_call)

    def run(self, thunk: Thunk, params: ExecuteParams) -> None:
        """Runs one thunk."""
        key = (id(thunk), params.stream.executor)
        single = self._singles.get(key)
        if single is None:
            with self._lock:
                single = self._singles.setdefault(key, _Single(thunk, params.stream.executor))
        single.run(params)

    def close(self) -> None:
        """Releases what the devices hold."""
        with self._lock:
            while self._singles:
                self._singles.popitem()[1].close()


@dataclass(slots=True)
class _Runner:
    """``steps.Runner`` for one execution."""

    plain: PlainThunks
    control_flow: ControlFlow
    failure: StatusError | None
    calls_left: int

    def run_thunk(self, thunk: Thunk, params: ExecuteParams) -> None:
        """Runs a thunk, unless it is the user's code and told to fail."""
        if self.failure is not None and thunk.kind == CUSTOM_CALL:
            self.calls_left -= 1
            if not self.calls_left:
                raise self.failure
        self.plain.run(thunk, params)
