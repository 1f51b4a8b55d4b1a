"""Feeds recorded executions through the machinery and collects the events it predicts.

What is taken from a recording are inputs: addresses, donation, and errors from outside the machinery.
Invariant: no event is copied from a recording; every one is emitted by the machinery as it runs on the given
  device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jax_cmdbuf.errors import InputError, StatusCode, StatusError
from jax_cmdbuf.events import Error, Event, EventLog
from jax_cmdbuf.executable.conversion import Conversion
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.control_flow import (
    CUSTOM_CALL,
    FixedControlFlow,
    infer_control_flow,
    infer_failing_call,
)
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable, Injection
from jax_cmdbuf.runtime.guard import FIDELITY, Guard
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.scenario import (
    ExecutionInputs,
    Outcome,
    Scenario,
    ThreadInputs,
    match_in_order,
    order_of_calls,
)
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot
from jax_cmdbuf.runtime.traced_allocator import TracedAllocator
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import MemoryAllocation, MemoryReservation, ScopedMapping
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceConfig

__all__ = ["Replay", "ReplayDevice", "ReplayedExecution", "replay"]


class ReplayDevice(Protocol):
    """A device whose fresh addresses can be chosen."""

    @property
    def stream(self) -> se.Stream:
        """Where the work goes; its executor is the device."""

    def choose_address(self, address: int) -> None:
        """Makes the next address range begin at ``address``."""

    def verify_aliases(self, pairs: Sequence[tuple[DeviceAddress, DeviceAddress]]) -> None:
        """Faults unless both addresses of every pair lead to the same memory."""


@dataclass(frozen=True, slots=True)
class ReplayedExecution:
    """One execution as the machinery ran it.

    Attributes:
      events: in order; an ``Error`` is the last one if it failed.
      snapshot: the remapping after it, or None in a mode that remaps nothing.
      owning: the owning table, or None when the program did not run.
    """

    events: tuple[Event, ...]
    snapshot: RemappingSnapshot | None = None
    owning: BufferAllocations | None = None

    def to_json(self) -> dict[str, Any]:
        """``{"events": [...]}`` with the recorded kinds and fields."""
        return {"events": [event.to_json() for event in self.events]}


@dataclass(frozen=True)
class Replay:
    """A replayed scenario.

    Attributes:
      scenario: what was fed in.
      loaded: the program.
      executions: one entry per recorded execution; threads that ran at once are one entry.
    """

    scenario: Scenario
    loaded: GpuExecutable
    executions: tuple[ReplayedExecution, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """``{"executions": [{"events": [...]}]}``."""
        return {"executions": [execution.to_json() for execution in self.executions]}


def replay(
    scenario: Scenario,
    executable: Executable,
    conversion: Conversion,
    device: ReplayDevice,
    guard: Guard = FIDELITY,
) -> Replay:
    """Runs a recorded scenario through the machinery.

    Args:
      scenario: the recording.
      executable: the program that ran.
      conversion: its command buffers.
      device: where to run it, with nothing allocated yet.
      guard: ``FIDELITY`` predicts XLA; a ``Guarded`` shows what this project would do instead.

    Raises:
      InputError: the recording does not fit the executable.
    """
    if scenario.module != executable.module:
        raise InputError(f"the recording is of {scenario.module}, the executable is {executable.module}")
    with _Replayer(scenario, executable, conversion, device, guard) as replayer:
        if scenario.threads is not None:
            return Replay(scenario, replayer.loaded, (replayer.run_threads(scenario.threads),))
        executions = tuple(replayer.run(inputs) for inputs in scenario.executions)
        return Replay(scenario, replayer.loaded, executions)


class _Replayer:
    """One replay's device memory, program and caller."""

    def __init__(
        self,
        scenario: Scenario,
        executable: Executable,
        conversion: Conversion,
        device: ReplayDevice,
        guard: Guard,
    ) -> None:
        self.log = EventLog()
        self.registry = ProfileRegistry()
        self.loaded = GpuExecutable(executable, conversion, scenario.mode, self.registry)
        self.executor = device.stream.executor
        self.allocator = TracedAllocator(DeviceConfig(device.stream), device.choose_address, self.log)
        self.options = RunOptions(self.allocator, device.stream, self.log, guard, self._on_tables)
        self._verify_aliases = device.verify_aliases
        self._owning: BufferAllocations | None = None
        self.scenario = scenario
        self._choose_address = device.choose_address
        self._donated = frozenset[int]() if scenario.has_donation is False else None
        self._calls_user_code = any(
            thunk.kind == CUSTOM_CALL for top in executable.thunks for thunk in top.walk()
        )
        self._foreign: dict[int, _ForeignMemory] = {}
        self._control_flow = FixedControlFlow()

    def __enter__(self) -> _Replayer:
        return self

    def __exit__(self, *error: object) -> None:
        self.loaded.close()
        self.registry.close()
        self.allocator.close()
        for foreign in self._foreign.values():
            foreign.close()

    def run(self, inputs: ExecutionInputs) -> ReplayedExecution:
        """One recorded execution."""
        if inputs.outcome is Outcome.REFUSED:
            return ReplayedExecution((_outside_error(inputs.error),))
        allocations = self.loaded.program.allocations
        parameters = [
            self._callers_buffer(inputs.parameters[position], allocations[index].size)
            for index, position in zip(self.loaded.parameters, self._positions(inputs), strict=True)
        ]
        self.allocator.follow(inputs.allocated, inputs.reservation)
        execution = self._execute(parameters, self._injection(inputs))
        self.allocator.give_back(inputs.freed)
        return execution

    def _injection(self, inputs: ExecutionInputs) -> Injection:
        """Control flow and failure of the user's code, from how many command buffers ran."""
        steps, runs = self.loaded.steps, inputs.command_buffer_runs
        if inputs.outcome is Outcome.RETURNED:
            # A failed execution stopped somewhere, so its count tells nothing about loops.
            self._control_flow = infer_control_flow(steps, runs)
        if inputs.outcome is Outcome.RETURNED or not self._calls_user_code:
            return Injection(control_flow=self._control_flow)
        call = infer_failing_call(steps, self._control_flow, runs)
        return Injection(True, _message(inputs.error), call, self._control_flow)

    def run_threads(self, inputs: ThreadInputs) -> ReplayedExecution:
        """All calls of several threads, one after the other as the program's lock let them in.

        Their arguments are not recorded; each has an address of its own that stays.
        """
        program, ordinal = self.loaded.program, self.executor.device_ordinal
        parameters = [
            self.allocator.allocate(ordinal, program.allocations[index].size)
            for index in self.loaded.parameters
        ]
        self.log.drain()
        sizes = [program.allocations[index].size for index in program.owned]
        self.allocator.follow(order_of_calls(inputs.memory, sizes), inputs.reservation)
        events: list[Event] = []
        last = None
        # Every call needs memory for its results, so the calls end with the recorded addresses.
        size = program.allocations[self.loaded.outputs[0]].size
        while self.allocator.remaining(size):
            last = self._execute(parameters, Injection())
            events += last.events
        return ReplayedExecution(
            tuple(events), last.snapshot if last else None, last.owning if last else None
        )

    def _positions(self, inputs: ExecutionInputs) -> range | tuple[int, ...]:
        """Which recorded argument each parameter is; arguments that the program does not use are left out."""
        given, taken = len(inputs.parameters), len(self.loaded.parameters)
        if given == taken:
            return range(taken)
        shapes, wanted = self.scenario.argument_shapes, self.loaded.executable.parameter_shapes
        positions = match_in_order(shapes, wanted) if len(shapes) == given and len(wanted) == taken else None
        if positions is None:
            raise InputError(f"the recording has {given} arguments, {self.scenario.module} takes {taken}")
        return positions

    def _execute(self, parameters: list[DeviceAddress], injection: Injection) -> ReplayedExecution:
        self.log.drain()
        with contextlib.suppress(StatusError):  # told by an event
            self.loaded.execute(self.options, parameters, self._donated, injection)
        snapshots = self.registry.snapshots()
        owning, self._owning = self._owning, None
        return ReplayedExecution(self.log.drain(), snapshots[0] if snapshots else None, owning)

    def _on_tables(
        self, owning: BufferAllocations, table: BufferAllocations, persistent: PersistentSet
    ) -> None:
        """Keeps the owning table and has the device check every address that stands for another."""
        self._owning = owning
        pairs = zip(table.addresses, owning.addresses, strict=True)
        self._verify_aliases([(address, owner) for address, owner in pairs if address is not owner])

    def _callers_buffer(self, address: int, size: int) -> DeviceAddress:
        """The caller's buffer at a recorded address, made to exist if it does not yet."""
        wanted = DeviceAddress(address, size)
        if address == 0 or self.allocator.is_active(wanted):
            return wanted
        if address % self.executor.granularity == 0:
            return self.allocator.adopt(wanted)
        # The VMM allocator hands out multiples of the granularity only, so this memory is not its own.
        if address not in self._foreign:
            self._choose_address(address - address % self.executor.granularity)
            self._foreign[address] = _ForeignMemory(self.executor, wanted)
        return wanted


class _ForeignMemory:
    """Memory that some other library allocated."""

    def __init__(self, executor: se.StreamExecutor, address: DeviceAddress) -> None:
        size = round_up(address.opaque % executor.granularity + address.size, executor.granularity)
        memory, reservation = executor.create_allocation(size), executor.create_reservation(size)
        mapping = reservation.map_to(0, size, memory)
        self._handles: tuple[MemoryAllocation | MemoryReservation | ScopedMapping, ...] = (
            mapping,
            reservation,
            memory,
        )

    def close(self) -> None:
        """Releases it."""
        for handle in self._handles:
            handle.close()


def _outside_error(text: str) -> Error:
    """The error of an exception's text, for example ``JaxRuntimeError: INTERNAL: no``."""
    for code in StatusCode:
        _, found, message = text.partition(f"{code.name}: ")
        if found:
            return Error(code.name, message)
    return Error("UNKNOWN", text)


def _message(text: str) -> str:
    error = _outside_error(text)
    return error.message.removesuffix("]").rpartition(" [executable_name=")[0] or error.message
