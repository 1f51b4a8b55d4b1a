"""What one run of a script did with command buffers: by process, function signature and device.

Invariant: plain immutable values, so that a report is the same in the process that made it, in its file, and
merged with the reports of other processes. Times are in microseconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

__all__ = [
    "Advice",
    "AllocationRun",
    "ArgumentUse",
    "DeviceInfo",
    "ExecutionRun",
    "FunctionRun",
    "Hazard",
    "ProcessInfo",
    "RunReport",
    "similar",
]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device that JAX has in a process: its id and kind."""

    id: int
    kind: str


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process of a run.

    Attributes:
      index, count: which of how many; 0 of 1 without ``jax.distributed``.
      host, pid: where it ran.
      platform: JAX's default backend; "" if the script never started one.
      devices: JAX's devices of this process.
      versions: of jax, jaxlib and this package.
      command: the script and its arguments.
      outcome: how the script ended: "finished", "exited", "failed" or "interrupted".
      detail: the exit status, or the exception's type and text.
      status: the process's exit status.
      began_us: when the script began, microseconds since 1970.
      took_us: how long it ran.
      notes: what was said about functions that could not be observed.
    """

    index: int
    count: int
    host: str
    pid: int
    platform: str
    devices: tuple[DeviceInfo, ...]
    versions: Mapping[str, str]
    command: tuple[str, ...]
    outcome: str
    detail: str
    status: int
    began_us: float
    took_us: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArgumentUse:
    """How the calls passed one argument.

    Attributes:
      calls: calls that were looked at.
      host: in how many it was no ``jax.Array`` but a NumPy array or a number.
      host_kept: in how many of those it was the very object of the call before.
      kept: in how many it was the very array of the call before.
      fed_back: in how many it was a result of the call before.
      donated: whether the function donates it.
      kind: type of the last host value, such as "numpy.ndarray"; "" if there was none.
      result: which result of the call before it was, the last time.
      same_as: another argument that was the very same array.
      source: another function whose result it was, the last time; "" if none that was observed.
    """

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


@dataclass(frozen=True, slots=True)
class AllocationRun:
    """One allocation that command buffers use.

    Attributes:
      index, size, path, role: which, where it comes from, its role under the update mode.
      is_argument, is_result: whether the caller passes it, or gets it.
      state, reason: the verdict and why.
      commands: how many commands use it; 0 where that is not known.
      compared, moves: executions in which its address was compared with the one before, and where it
        differed.
      places: different addresses that were seen; 0 where addresses were not kept.
      cells: one letter per execution; see ``CELLS`` of ``run_function``. "" where addresses were not kept.
      use: how the calls passed it; None for what is no argument.
    """

    index: int
    size: int
    path: str
    role: str
    is_argument: bool
    is_result: bool
    state: str
    reason: str
    commands: int
    compared: int
    moves: int
    places: int
    cells: str
    use: ArgumentUse | None = None


@dataclass(frozen=True, slots=True)
class ExecutionRun:
    """One execution.

    Attributes:
      began_us, took_us: the call on the host; -1 if it was not timed.
      fallbacks, recorded, updated, skipped, submitted: see ``timeline.Column``.
      transition: "active", "disabled" or "".
      error: the error's text, or "".
    """

    began_us: float
    took_us: float
    fallbacks: int = 0
    recorded: int = 0
    updated: int = 0
    skipped: int = 0
    submitted: int = 0
    transition: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Hazard:
    """Something that goes wrong, or will: its kind, and one sentence."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What to change in the code.

    Attributes:
      action: "donate", "reuse result", "keep alive", "upload once", "pass once", "copy in" or "remap
        temporaries".
      path: of the allocation; "" for advice on the function.
      others: paths of further allocations that the same holds for.
      commands: how many commands are updated for them.
      text: what is the matter, and what to do.
    """

    action: str
    path: str
    others: tuple[str, ...]
    commands: int
    text: str

    @property
    def subject(self) -> str:
        """What it is about: "params['w'] and 7 more"."""
        return self.path + (f" and {len(self.others)} more" if self.others else "")


@dataclass(frozen=True, slots=True)
class FunctionRun:
    """One signature of a function on one device of a process.

    Attributes:
      process: index of the process.
      function: the function's name.
      signature: number of the signature among the function's, from 0.
      arguments: "path shape" of each argument that the program takes.
      device: the device's id.
      runtime: "simulated" or "xla".
      target: the GPU that was simulated, or the device's kind.
      requested, effective, reason, remedy: the update mode; see ``UpdateModeStatus``.
      phase: "inactive", "profiling", "active", "disabled", or "none" in a mode that remaps nothing.
      steps, limit: executions profiled, of how many.
      calls, failures: executions in total, and those that failed.
      commands: commands in the program's command buffers; None where there is no plan.
      persistent: allocations whose addresses never need a look; None while unknown.
      selected: those of them that live in the reservation.
      reserved: bytes of the reservation.
      allocations: those that command buffers use.
      first: number of the first execution of ``executions``; older ones are counted only.
      executions: oldest first.
      hazards, advice: what was concluded.
      problem: why there is no plan, or "".
    """

    process: int
    function: str
    signature: int
    arguments: tuple[str, ...]
    device: int
    runtime: str
    target: str
    requested: str
    effective: str
    reason: str = ""
    remedy: str = ""
    phase: str = "none"
    steps: int = 0
    limit: int = 0
    calls: int = 0
    failures: int = 0
    commands: int | None = None
    persistent: tuple[int, ...] | None = None
    selected: tuple[int, ...] = ()
    reserved: int = 0
    allocations: tuple[AllocationRun, ...] = ()
    first: int = 0
    executions: tuple[ExecutionRun, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    advice: tuple[Advice, ...] = ()
    problem: str = ""

    @property
    def replays(self) -> tuple[ExecutionRun, ...]:
        """Executions after the first recording that submitted command buffers: the steady state."""
        recorded = [number for number, each in enumerate(self.executions) if each.recorded]
        # The recording may be older than what was kept.
        begin = recorded[0] + 1 if recorded else 0
        return tuple(each for each in self.executions[begin:] if each.submitted)

    @property
    def updated_per_step(self) -> float | None:
        """Commands updated per execution in the steady state; None if there was none."""
        replays = self.replays
        return sum(each.updated for each in replays) / len(replays) if replays else None

    @property
    def label(self) -> str:
        """The function, and which signature if it has several."""
        return f"{self.function} (signature {self.signature})" if self.signature else self.function


@dataclass(frozen=True)
class RunReport:
    """A run, of one process or merged from several: processes by index, functions by process."""

    processes: tuple[ProcessInfo, ...]
    functions: tuple[FunctionRun, ...] = field(default=())

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """Indices of processes of the run whose reports are not here."""
        count = max((each.count for each in self.processes), default=0)
        return tuple(sorted(set(range(count)) - {each.index for each in self.processes}))

    def process(self, index: int) -> ProcessInfo:
        """The process of that index."""
        return next(each for each in self.processes if each.index == index)


def similar(functions: Sequence[FunctionRun]) -> list[list[FunctionRun]]:
    """Groups the devices on which one signature of a function did the same, in order of appearance."""
    groups: dict[object, list[FunctionRun]] = {}
    for each in functions:
        verdicts = tuple((row.index, row.state, row.reason) for row in each.allocations)
        counts = tuple((e.fallbacks, e.recorded, e.updated, e.skipped, e.error) for e in each.executions)
        key = (each.function, each.signature, each.arguments, each.runtime, each.requested, each.effective)
        groups.setdefault((key, each.phase, each.persistent, verdicts, counts, each.advice), []).append(each)
    return list(groups.values())
