"""A command buffer as a step of a program: recorded once, updated where addresses changed, else submitted as
is.

Mirrors ``xla/backends/gpu/runtime/command_buffer_thunk.cc``. Invariant: when a command buffer is submitted,
the address it remembers of every dynamic allocation is the one its commands were recorded with. One lock per
device covers recording and submission.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from jax_cmdbuf.events import EventSink, ExecuteCommandBuffer, ThunkFallback, UpdateBegin
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet, select
from jax_cmdbuf.runtime.commands import CommandList
from jax_cmdbuf.runtime.recording import Recording
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError

__all__ = ["FALLBACK_REASON", "WARMUP_REASON", "CommandBufferThunk", "ExecuteParams"]

# XLA's text of the log line.
FALLBACK_REASON = "persistent allocation indices are not yet available"
WARMUP_REASON = "warm up iteration of the command buffer"


@dataclass(frozen=True, slots=True)
class ExecuteParams:
    """What every thunk of one execution sees.

    Attributes:
      table: the execution table.
      persistent: the persistent indices, or unknown while profiling.
      stream: where the work goes.
      sink: takes the events.
    """

    table: BufferAllocations
    persistent: PersistentSet
    stream: se.Stream
    sink: EventSink


class _Recorded:
    """The state of one command buffer on one device."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.recording: Recording | None = None
        self.persistent: PersistentSet | None = None
        self.dynamic: tuple[int, ...] = ()
        self.remembered: tuple[DeviceAddress, ...] = ()
        # Of every allocation, when the persistent set was adopted.
        self.known: dict[int, DeviceAddress] = {}
        self.num_executions = 0
        self.warmup_done = False
        self._select = select(())

    def changed(self, commands: CommandList, params: ExecuteParams) -> frozenset[int]:
        """Allocations whose address is not the one they were recorded with; remembers the new addresses.

        Under the same persistent set as before only dynamic allocations are looked at. Under another one, all
        are: after a reset or a demotion a persistent address may be another one than was recorded.
        """
        addresses = params.table.addresses
        if params.persistent is not self.persistent:
            return self._adopt(commands, params.persistent, addresses)
        current = self._select(addresses)
        if current == self.remembered:
            return _NOTHING
        changed = frozenset(
            index
            for index, new, old in zip(self.dynamic, current, self.remembered, strict=True)
            if new != old
        )
        self.remembered = current
        return changed

    def _adopt(
        self, commands: CommandList, persistent: PersistentSet, addresses: tuple[DeviceAddress, ...]
    ) -> frozenset[int]:
        self.known.update(zip(self.dynamic, self.remembered, strict=True))
        used = commands.allocations
        changed = frozenset(index for index in used if self.known.get(index) != addresses[index])
        self.known = {index: addresses[index] for index in used}
        self.persistent = persistent
        self.dynamic = persistent.dynamic(used)
        self._select = select(self.dynamic)
        self.remembered = self._select(addresses)
        return changed

    def forget(self) -> None:
        """Releases the device's command buffer; it is recorded again when it is next initialized."""
        recording, self.recording = self.recording, None
        self.persistent, self.dynamic, self.remembered, self.known = None, (), (), {}
        self._select = select(())
        if recording is not None:
            recording.close()


_NOTHING: frozenset[int] = frozenset()


class CommandBufferThunk:
    """One command buffer of a program, with its state per device.

    Attributes:
      name: XLA's annotation, ``command_buffer_<id of its first thunk>``.
      commands: what is recorded.
    """

    def __init__(self, name: str, commands: CommandList) -> None:
        self.name = name
        self.commands = commands
        self._lock = threading.Lock()
        self._recorded: dict[se.StreamExecutor, _Recorded] = {}

    def initialize(self, params: ExecuteParams) -> None:
        """Records the commands before the program starts, if that has not happened.

        All command buffers of a program are recorded before its first thunk runs, because a device may need
        memory for them and must not wait for it between collectives. While the persistent set is unknown
        nothing is recorded.
        """
        if not params.persistent.known or not self.commands.commands:
            return
        recorded = self._on(params.stream.executor)
        with recorded.lock:
            recorded.warmup_done |= not self.commands.requires_warmup
            if not recorded.warmup_done:
                return
            if recorded.recording is None:
                recorded.changed(self.commands, params)
                self._create(recorded, params)
            elif self.commands.requires_update_on_initialize and params.persistent.dynamic(
                self.commands.allocations
            ):
                changed = recorded.changed(self.commands, params)
                self._update(recorded, params, changed, is_initialization=True)

    def execute(self, params: ExecuteParams, run_thunks: Callable[[], None]) -> None:
        """Updates what must be updated and submits.

        Args:
          params: table, persistent set and stream of this execution.
          run_thunks: runs the same work as plain thunks; used while the persistent set is unknown and for the
            warm-up.
        """
        if not self.commands.commands:
            return
        if not params.persistent.known:
            params.sink.emit(ThunkFallback(FALLBACK_REASON))
            run_thunks()
            return
        recorded = self._on(params.stream.executor)
        with recorded.lock:
            if not recorded.warmup_done:
                params.sink.emit(ThunkFallback(WARMUP_REASON))
                run_thunks()
                recorded.warmup_done = True
                return
            changed = recorded.changed(self.commands, params)
            first_record = recorded.recording is None
            if changed or first_record or self.commands.requires_update_on_execute:
                params.sink.emit(
                    UpdateBegin(recorded.num_executions, len(self.commands), len(changed), first_record)
                )
                if first_record:
                    self._create(recorded, params)
                else:
                    self._update(recorded, params, changed)
            recorded.num_executions += 1
            params.sink.emit(ExecuteCommandBuffer(recorded.num_executions))
            assert recorded.recording is not None
            try:
                recorded.recording.buffer.submit(params.stream)
            except DriverError as error:
                raise error.while_doing(f"launching {self.name}") from error

    def evict(self, executor: se.StreamExecutor | None = None) -> None:
        """Releases the device command buffers of one device, or of all; the next use records them again."""
        with self._lock:
            states = [self._recorded[executor]] if executor in self._recorded else []
            if executor is None:
                states = list(self._recorded.values())
        for state in states:
            with state.lock:
                state.forget()

    def _on(self, executor: se.StreamExecutor) -> _Recorded:
        recorded = self._recorded.get(executor)
        if recorded is None:
            with self._lock:
                recorded = self._recorded.setdefault(executor, _Recorded())
        return recorded

    def _create(self, recorded: _Recorded, params: ExecuteParams) -> None:
        recording = Recording(self.commands, params.stream.executor)
        try:
            recording.create(params.table, params.sink)
        except BaseException:
            recording.close()
            raise
        recorded.recording = recording
        recorded.num_executions = 0

    def _update(
        self,
        recorded: _Recorded,
        params: ExecuteParams,
        changed: frozenset[int],
        is_initialization: bool = False,
    ) -> None:
        assert recorded.recording is not None
        try:
            recorded.recording.update(params.table, changed, params.sink, is_initialization)
        except BaseException:
            # Some commands may hold new addresses and some old ones.
            recorded.forget()
            raise
        recorded.num_executions = 0
