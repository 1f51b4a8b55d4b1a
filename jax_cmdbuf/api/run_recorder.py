"""Watches everything that decorated functions do in a process, whichever runtime they have.

It stands where the process's runtimes stand and passes every call on. Invariants: what a call returns or
raises
is the runtime's doing; a recorder that was stopped is in nobody's way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.call_notes import CallNotes, Producers
from jax_cmdbuf.api.native_mode import UpdateModeStatus
from jax_cmdbuf.api.native_profile import ObservedProfile
from jax_cmdbuf.api.observation import Simulation, set_simulation
from jax_cmdbuf.api.signature import Arguments, is_tracing, read_arguments
from jax_cmdbuf.api.simulated_runtime import Observed, SimulatedProgram, SimulatedRuntime
from jax_cmdbuf.api.xla_runtime import XlaRuntime, set_xla_runtime

if TYPE_CHECKING:
    from jax_cmdbuf.api.decorator import CommandBufferFunction

__all__ = ["RecordedSimulation", "RecordedXla", "RunRecorder"]


class RecordedSimulation(SimulatedRuntime):
    """The simulated runtime, with notes on how it is called.

    Attributes:
      planning: name of the function whose plan is being made, or "".
    """

    def __init__(self) -> None:
        super().__init__()
        self.planning = ""
        self._notes: dict[int, CallNotes] = {}
        self._producers = Producers()
        self._begun = threading.local()

    def program(self, observed: Observed, arguments: Arguments) -> SimulatedProgram | None:
        """See ``SimulatedRuntime``; the call begins when this returns."""
        self.planning = observed.name
        try:
            found = super().program(observed, arguments)
        finally:
            self.planning = ""
        if found is not None:
            self._begun.calls = [
                *getattr(self._begun, "calls", ())[-8:],
                (id(arguments), time.perf_counter_ns()),
            ]
        return found

    def finish(self, program: SimulatedProgram, arguments: Arguments, results: Sequence[Any] | None) -> None:
        """See ``SimulatedRuntime``."""
        ended = time.perf_counter_ns()
        calls = [began for key, began in getattr(self._begun, "calls", ()) if key == id(arguments)]
        began = calls[-1] if calls else ended
        super().finish(program, arguments, results)
        given = [
            (arguments.paths[position], arguments.leaves[position], arguments.donated[position])
            for position in program.plan.kept
        ]
        names = [program.loaded.program.paths.get(index, "") for index in program.loaded.outputs]
        arrays = list(zip(names, results, strict=False)) if results is not None else []
        self.notes(program).add(given, arrays, began, ended - began)
        for _, array in arrays:
            if isinstance(array, jax.Array):
                self._producers.add(array, program.observed.name)

    def notes(self, program: SimulatedProgram) -> CallNotes:
        """Of a program's calls."""
        return self._notes.setdefault(id(program), CallNotes(self._producers))


class RecordedXla:
    """XLA's runtime, with notes on how functions are called; made when the first one is.

    Asking JAX for its backend before the script does would take away the script's say in it.
    """

    def __init__(self) -> None:
        self._runtime: XlaRuntime | None = None
        self._notes: dict[str, CallNotes] = {}
        self._producers = Producers()

    @property
    def runtime(self) -> XlaRuntime:
        """The runtime itself."""
        if self._runtime is None:
            self._runtime = XlaRuntime()
        return self._runtime

    def attach(self, function: CommandBufferFunction[..., Any], observe: bool = True) -> Callable[..., Any]:
        """See ``XlaRuntime``."""
        call = self.runtime.attach(function, observe)
        if not observe:
            return call
        name, is_top_level = function.observed.name, _jax.top_level_check()
        notes, producers = self.notes(name), self._producers

        def timed(*args: Any, **kwargs: Any) -> Any:
            if not is_top_level() or is_tracing((args, kwargs)):
                return call(*args, **kwargs)
            began = time.perf_counter_ns()
            result = call(*args, **kwargs)
            took = time.perf_counter_ns() - began
            arguments = read_arguments(function.jitted, function.names, args, kwargs)
            given = list(zip(arguments.paths, arguments.leaves, arguments.donated, strict=True))
            results = [(f"result[{n}]", leaf) for n, leaf in enumerate(jax.tree.leaves(result))]
            notes.add(given, results, began, took)
            for _, array in results:
                if isinstance(array, jax.Array):
                    producers.add(array, name)
            return result

        return timed

    def status(self, function: CommandBufferFunction[..., Any]) -> UpdateModeStatus:
        """See ``XlaRuntime``."""
        return self.runtime.status(function)

    def observed(self) -> tuple[ObservedProfile, ...]:
        """See ``XlaRuntime``; nothing where no function ran."""
        return self._runtime.observed() if self._runtime is not None else ()

    def __getattr__(self, name: str) -> Any:
        # `registry`, `client`, `snapshots`, `probed`: the runtime's.
        return getattr(self.runtime, name)

    def notes(self, function: str) -> CallNotes:
        """Of all calls of functions of that name."""
        return self._notes.setdefault(function, CallNotes(self._producers))

    @property
    def calls(self) -> int:
        """Calls in total."""
        return sum(each.count for each in list(self._notes.values()))


class _Warnings(logging.Handler):
    """Keeps what this package warns about, once each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.setdefault(record.getMessage())


class RunRecorder:
    """Takes the place of the process's runtimes from its making to ``stop``.

    Attributes:
      simulation: the simulated GPUs.
      xla: the native runtime.
      clock: (nanoseconds since 1970, of ``time.perf_counter_ns``) at one moment.
    """

    def __init__(self) -> None:
        self.clock = (time.time_ns(), time.perf_counter_ns())
        self.simulation = RecordedSimulation()
        self.xla = RecordedXla()
        self._warnings = _Warnings()
        logging.getLogger("jax_cmdbuf").addHandler(self._warnings)
        set_simulation(Simulation(self.simulation))
        set_xla_runtime(cast(XlaRuntime, self.xla))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was warned about."""
        return tuple(self._warnings.texts)

    def epoch_us(self, nanoseconds: int) -> float:
        """A time of ``time.perf_counter_ns`` as microseconds since 1970."""
        return (self.clock[0] + nanoseconds - self.clock[1]) / 1000

    def progress(self) -> str:
        """What is going on, in one line."""
        if self.simulation.planning:
            return f"planning {self.simulation.planning}"
        programs = self.simulation.programs
        calls = sum(each.count for each in programs) + self.xla.calls
        if not calls:
            return "no observed call yet"
        text = f"{calls:,} calls"
        if programs:
            busiest = max(programs, key=lambda each: each.count)
            text += f", {busiest.observed.name}: {_state(busiest)}"
        return text

    def stop(self) -> None:
        """Gives the process new runtimes; what was recorded stays until ``close``."""
        logging.getLogger("jax_cmdbuf").removeHandler(self._warnings)
        set_simulation(None)
        set_xla_runtime(None)

    def close(self) -> None:
        """Forgets what was recorded."""
        self.simulation.close()


def _state(program: SimulatedProgram) -> str:
    executions = next(iter(program.executions.values()), None)
    last = executions[-1] if executions else None
    if last is None or last.snapshot is None:
        return str(program.observed.mode)
    snapshot = last.snapshot
    persistent = "" if snapshot.persistent is None else f", {len(snapshot.persistent)} allocations persistent"
    return f"{snapshot.phase}{persistent}"
