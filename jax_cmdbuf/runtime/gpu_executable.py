"""A loaded program and its executions: buffers in, steps, buffers out.

Mirrors ``xla/service/gpu/gpu_executable.cc`` (``ExecuteAsyncOnStreamImpl``). Invariant: after an execution,
failed or not, the program owns no buffer of it: results belong to the caller and everything else is freed.

How others run a program, on any backend::

    registry = ProfileRegistry()
    loaded = GpuExecutable(executable, convert(executable, device=...), mode, registry)
    result = loaded.execute(RunOptions(allocator, stream, sink), parameters)   # DeviceAddress per parameter
    ...                                                   # the caller frees result.outputs with the allocator
    registry.snapshots(); registry.export_json(); registry.reset(); loaded.close(); registry.close()

and, for one simulated execution that may fail, ``execute_once``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jax_cmdbuf.errors import InputError, StatusCode, StatusError
from jax_cmdbuf.events import NO_SINK, Error, Event, EventLog
from jax_cmdbuf.executable.conversion import Conversion, command_buffer_allocations
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.command_buffer_thunk import ExecuteParams
from jax_cmdbuf.runtime.constants import LoadedConstants
from jax_cmdbuf.runtime.control_flow import FixedControlFlow
from jax_cmdbuf.runtime.execution_scope import ExecutionScope, RunOptions, open_scope
from jax_cmdbuf.runtime.plain_thunks import PlainThunks
from jax_cmdbuf.runtime.policy import classify
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.remapping import Program
from jax_cmdbuf.runtime.steps import ControlFlow, build_steps, command_buffers, run_steps
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from xla_flags.options import CommandBufferUpdateMode

__all__ = [
    "ExecutionResult",
    "GpuExecutable",
    "Injection",
    "execute_once",
]


_NOTHING_OPEN = FixedControlFlow()


@dataclass(frozen=True, slots=True)
class Injection:
    """What a simulated execution is told about the world outside it.

    Attributes:
      failing: the user's own code, a custom call outside command buffers, returns an error.
      message: the error's text.
      failing_call: which custom call, counted from 1 as they run.
      control_flow: decides loops and branches.
    """

    failing: bool = False
    message: str = "injected failure"
    failing_call: int = 1
    control_flow: ControlFlow = _NOTHING_OPEN


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What an execution returns.

    Attributes:
      outputs: one address per result leaf, in order; the caller owns them (those of donated parameters too).
    """

    outputs: tuple[DeviceAddress, ...]


class GpuExecutable:
    """One loaded program with its update mode.

    Attributes:
      executable: what XLA compiled.
      program: its allocations and their classes.
      command_buffer_allocations: indices that some command buffer uses.
      parameters: allocation index of each entry parameter leaf, in the order callers pass them.
      outputs: allocation index of each result leaf, in order.
      steps: what an execution runs, in order.
    """

    def __init__(
        self,
        executable: Executable,
        conversion: Conversion,
        mode: CommandBufferUpdateMode,
        registry: ProfileRegistry,
        paths: Mapping[int, str] | None = None,
    ) -> None:
        """Loads ``executable``; if it has command buffers, those of all others are evicted, as XLA does.

        Args:
          executable: the program.
          conversion: its command buffers.
          mode: the update mode.
          registry: where its profiles live.
          paths: allocation index -> what to call it; replaces the names that the executable has.

        Raises:
          InputError: the mode is not modelled.
        """
        self.executable = executable
        self.command_buffer_allocations = command_buffer_allocations(conversion)
        self.program = Program(
            executable.module,
            executable.allocations,
            classify(executable.allocations, self.command_buffer_allocations, mode),
            _paths(executable) | dict(paths or {}),
        )
        unroll = bool(executable.debug_options.get("xla_gpu_command_buffer_unroll_loops", False))
        self.steps = build_steps(conversion.sequence, unroll)
        self._command_buffers = tuple(command_buffers(self.steps))
        self.parameters = executable.parameter_allocations
        self.outputs = executable.result_allocations
        self._live = frozenset(self.outputs)
        self._aliased = frozenset(
            index
            for index in self.parameters
            if executable.allocations[index].maybe_live_out
            or executable.allocations[index].is_parameter_aliased_with_output
        )
        self._constants = LoadedConstants(executable)
        self._plain = PlainThunks()
        self.registry = registry
        registry.loaded(self, self._constants)
        if self._command_buffers:
            registry.evict_others(self)

    def execute(
        self,
        options: RunOptions,
        parameters: Sequence[DeviceAddress],
        donated: frozenset[int] | None = None,
        injection: Injection | None = None,
        results: Sequence[DeviceAddress] | None = None,
    ) -> ExecutionResult:
        """Runs the program once.

        Args:
          options: allocator, stream, events, guard.
          parameters: the caller's buffer of each parameter leaf.
          donated: positions of parameters that the caller gives away; None: all that the program aliases to
            an output. One that is aliased but not donated is copied, so that the caller keeps its value.
          injection: what a simulation is told; None: nothing fails, loops run once.
          results: the caller's buffer of each result leaf, which stays the caller's also after a failure;
            None: the program allocates them. One that reuses a parameter's memory is that parameter's buffer.

        Raises:
          InputError: wrong number of parameters or results, or a result elsewhere than its parameter.
          StatusError: XLA's error for the same situation; every buffer of the execution is freed.
        """
        if len(parameters) != len(self.parameters):
            raise InputError(
                f"{self.program.module} takes {len(self.parameters)} buffers, {len(parameters)} were given"
            )
        given = dict(zip(self.parameters, parameters, strict=True))
        if results is not None:
            self._take_results(given, results)
        try:
            return self._execute(options, given, donated, injection or _NOTHING_INJECTED)
        except StatusError as error:
            options.sink.emit(Error(error.code.name, error.message))
            raise

    def _take_results(self, given: dict[int, DeviceAddress], results: Sequence[DeviceAddress]) -> None:
        if len(results) != len(self.outputs):
            raise InputError(
                f"{self.program.module} returns {len(self.outputs)} buffers, {len(results)} were given"
            )
        for number, (index, address) in enumerate(zip(self.outputs, results, strict=True)):
            if given.setdefault(index, address) != address:
                raise InputError(
                    f"result {number} of {self.program.module} is the memory of an argument, "
                    f"{given[index]}, but {address} was given for it"
                )

    def _execute(
        self,
        options: RunOptions,
        given: Mapping[int, DeviceAddress],
        donated: frozenset[int] | None,
        injection: Injection,
    ) -> ExecutionResult:
        for number, index in enumerate(self.parameters):
            if given[index].is_null and self.program.allocations[index].size:
                raise StatusError(
                    StatusCode.FAILED_PRECONDITION,
                    f"Cannot run XLA computation because the buffer of parameter {number} is null",
                )
        constants = self._constants.on(options.stream)
        with open_scope(self, self.program, self.registry, options) as scope:
            owning = scope.generate_buffer_allocations(given, constants)
            mine = {index: owning[index] for index in self.program.owned if index not in given}
            try:
                self._protect(scope, donated, mine)
                owning = owning.with_addresses(mine)
                scope.execute(owning, _Body(self, options, injection))
                self._tear_down(scope, mine, keep=self._live)
            except BaseException:
                self._tear_down(scope, mine)
                raise
        return ExecutionResult(tuple(owning[index] for index in self.outputs))

    def _protect(
        self, scope: ExecutionScope, donated: frozenset[int] | None, mine: dict[int, DeviceAddress]
    ) -> None:
        """Gives aliased parameters that the caller keeps a buffer of their own."""
        if donated is None:
            return
        for position, index in enumerate(self.parameters):
            if index in self._aliased and position not in donated:
                mine[index] = scope.allocate_copy(index)

    def _tear_down(
        self, scope: ExecutionScope, mine: dict[int, DeviceAddress], keep: frozenset[int] = frozenset()
    ) -> None:
        """Frees what is not kept: temporaries first, then what would have become results."""
        for index in sorted(mine.keys() - keep, key=lambda index: (index in self._live, index)):
            address = mine.pop(index)
            scope.deallocate(address)

    def _run(
        self, table: BufferAllocations, persistent: PersistentSet, options: RunOptions, injection: Injection
    ) -> None:
        params = ExecuteParams(table, persistent, options.stream, options.sink)
        for buffer in self._command_buffers:
            buffer.initialize(params)
        failure = StatusError(StatusCode.INTERNAL, injection.message) if injection.failing else None
        runner = self._plain.runner(injection.control_flow, failure, injection.failing_call)
        run_steps(self.steps, params, runner)

    def evict_command_buffers(self) -> None:
        """Releases the device command buffers; they are recorded again at the next use."""
        for buffer in self._command_buffers:
            buffer.evict()

    def close(self) -> None:
        """Unloads the program: its command buffers, its remappings and its constants go."""
        self.evict_command_buffers()
        self._plain.close()
        self.registry.unload(self)
        self._constants.close()


_NOTHING_INJECTED = Injection()


@dataclass(frozen=True, slots=True)
class _Body:
    """Runs a program on a table; what ``ExecutionScope.execute`` calls."""

    executable: GpuExecutable
    options: RunOptions
    injection: Injection

    def __call__(self, table: BufferAllocations, persistent: PersistentSet) -> None:
        self.executable._run(table, persistent, self.options, self.injection)


def _paths(executable: Executable) -> dict[int, str]:
    """Where each allocation comes from, in the user's words."""
    paths = {each.index: "temporary" for each in executable.allocations if each.is_preallocated_temp_buffer}
    paths |= {constant.allocation: f"constant {constant.symbol}" for constant in executable.constants}
    paths |= {output.allocation: f"result{list(output.shape_index)}" for output in executable.outputs}
    for allocation in executable.allocations:
        number = allocation.parameter_number
        if number is not None:
            names = executable.parameter_names
            name = names[number] if number < len(names) else f"parameter {number}"
            leaf = allocation.parameter_shape_index
            paths[allocation.index] = name + (str(list(leaf)) if leaf else "")
    return paths


def execute_once(
    loaded: GpuExecutable,
    options: RunOptions,
    parameters: Sequence[DeviceAddress],
    failing: bool = False,
    donated: frozenset[int] | None = None,
) -> tuple[tuple[DeviceAddress, ...] | None, tuple[Event, ...]]:
    """Simulates one execution and returns what happened instead of raising.

    Args:
      loaded: the program.
      options: where it runs; its sink gets the events as well.
      parameters: the caller's buffer of each parameter leaf.
      failing: the user's own code in the program returns an error.
      donated: see ``GpuExecutable.execute``.

    Returns:
      Result addresses, which the caller owns, or None when the execution failed; and the events in order, the
      last of which is then an ``Error``.
    """
    log = EventLog()
    outputs = None
    try:
        logged = replace(options, sink=log)
        outputs = loaded.execute(logged, parameters, donated, Injection(failing=failing)).outputs
    except StatusError:
        pass
    events = log.drain()
    if options.sink is not NO_SINK:
        for event in events:
            options.sink.emit(event)
    return outputs, events
