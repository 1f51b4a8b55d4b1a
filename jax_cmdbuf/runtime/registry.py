"""Per executable and device: the profile, the reservation and the lock that serialises executions.

Mirrors the per-executor state of ``xla/service/gpu/gpu_executable_va_remap_allocator.cc``. Invariants: a
remapping's state changes only under its lock, which an execution holds from start to end; everything a
snapshot reads is an immutable value behind one attribute, so a snapshot needs no lock. The persistent set
goes from unknown to known once; only the guard may shrink it afterwards.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.runtime.buffer_allocations import PersistentSet, select
from jax_cmdbuf.runtime.guard import Moves
from jax_cmdbuf.runtime.policy import Classification
from jax_cmdbuf.runtime.profiling import CandidateVerdict, Profile, ProfilePhase, begin
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import MemoryReservation
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator

__all__ = [
    "AllocationState",
    "Demotion",
    "Layout",
    "ProfileRegistry",
    "Program",
    "Remapping",
    "RemappingSnapshot",
    "Slot",
    "lay_out",
]


@dataclass(frozen=True)
class Program:
    """What remapping needs to know of an executable.

    Attributes:
      module: HLO module name.
      allocations: the allocation table.
      classification: its classes under the update mode.
      paths: allocation index -> where it comes from, in the user's words (argument path, output, temporary).
    """

    module: str
    allocations: tuple[BufferAllocation, ...]
    classification: Classification
    paths: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def owned(self) -> tuple[int, ...]:
        """Allocations for which an execution allocates memory, ascending."""
        return tuple(
            allocation.index
            for allocation in self.allocations
            if allocation.size
            and not allocation.is_entry_computation_parameter
            and not allocation.is_constant
            and not allocation.is_thread_local
        )

    @cached_property
    def constants_persistent(self) -> PersistentSet:
        """What an execution without remapping is told."""
        return PersistentSet(self.classification.constants)


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of an allocation in the reservation: bytes from its start, and rounded size."""

    offset: int
    size: int


@dataclass(frozen=True)
class Layout:
    """Which allocation lives where in the reservation.

    Attributes:
      slots: allocation index -> slot, in ascending index order.
      total_size: bytes to reserve.
      granularity: the device's granularity that the slots were rounded to.
    """

    slots: Mapping[int, Slot]
    total_size: int
    granularity: int


def lay_out(program: Program, selected: tuple[int, ...], granularity: int) -> Layout:
    """One slot after the other in ascending index order, each rounded up to ``granularity`` bytes."""
    slots: dict[int, Slot] = {}
    offset = 0
    for index in sorted(selected):
        size = round_up(program.allocations[index].size, granularity)
        slots[index] = Slot(offset, size)
        offset += size
    return Layout(slots, offset, granularity)


@dataclass(frozen=True, slots=True)
class Demotion:
    """An allocation that the guard took out of the remapped set, and why."""

    allocation: int
    reason: str


@dataclass(frozen=True, slots=True)
class AllocationState:
    """One allocation in a snapshot: role, whether it is remapped, why, and its argument path."""

    allocation: int
    size: int
    role: str
    state: str
    reason: str
    path: str


@dataclass(frozen=True, slots=True)
class RemappingSnapshot:
    """A remapping as it stood at one moment.

    Attributes:
      module, device, mode: whose it is.
      phase: the profile's phase.
      steps, limit: successful executions observed, of how many.
      executions, failures: executions begun, and those that failed.
      selected: allocations that live in the reservation now.
      persistent: the persistent indices, or None while unknown.
      reserved_bytes: size of the reservation.
      allocations: every allocation with its verdict.
      demotions: what the guard took out.
    """

    module: str
    device: int
    mode: str
    phase: str
    steps: int
    limit: int
    executions: int
    failures: int
    selected: tuple[int, ...]
    persistent: tuple[int, ...] | None
    reserved_bytes: int
    allocations: tuple[AllocationState, ...]
    demotions: tuple[Demotion, ...]

    def to_json(self) -> dict[str, Any]:
        """The snapshot as a JSON object."""
        names = self.__dataclass_fields__
        value = {name: getattr(self, name) for name in names if name not in ("allocations", "demotions")}
        for name in ("allocations", "demotions"):
            rows = getattr(self, name)
            value[name] = [{key: getattr(row, key) for key in row.__dataclass_fields__} for row in rows]
        return value


class Remapping:
    """The state of one program on one device.

    Attributes:
      program: what is remapped.
      allocator: the device's VMM allocator that the first execution had.
      lock: held by an execution from start to end.
      profile: phase, steps, observations.
      verdicts: what the transition decided about each candidate; empty before it.
      selected: allocations that live in the reservation.
      persistent: what the thunks are told.
      placed: those of them that are allocated in their slot (temporaries).
      aliased: those of them that are mapped to their slot in each execution (inputs and outputs), ascending.
      layout, reservation: set at the first remapped execution.
      unreleased: aliases whose release the driver refused twice.
      sources, moves: addresses of ``aliased`` in the last execution, and what the guard remembers of their
        moves.
    """

    def __init__(
        self, program: Program, allocator: DeviceAddressVmmAllocator, executor: se.StreamExecutor
    ) -> None:
        self.program = program
        self.allocator = allocator
        self.executor = executor
        self.lock = threading.Lock()
        self.profile = Profile()
        self.verdicts: Mapping[int, CandidateVerdict] = {}
        self.selected: tuple[int, ...] = ()
        self.placed: frozenset[int] = frozenset()
        self.aliased: tuple[int, ...] = ()
        self.sources_of: Callable[[tuple[DeviceAddress, ...]], tuple[DeviceAddress, ...]] = select(())
        self.sources: tuple[DeviceAddress, ...] = ()
        self.moves: Moves = {}
        self.unreleased: list[int] = []
        self.is_closed = False
        self.persistent = PersistentSet.UNKNOWN
        self.layout: Layout | None = None
        self.reservation: MemoryReservation | None = None
        self.demotions: tuple[Demotion, ...] = ()
        self.executions = 0
        self.failures = 0
        classification = program.classification
        if not classification.policy.profile_steps:
            self.select(classification.va_remapped)

    @property
    def is_disabled(self) -> bool:
        """Whether executions run without remapping from now on."""
        return self.profile.phase is ProfilePhase.DISABLED

    def begin(self) -> None:
        """An execution begins; the first one starts profiling where the mode has it."""
        self.executions += 1
        if self.program.classification.policy.profile_steps:
            self.profile = begin(self.profile)

    def select(self, selected: tuple[int, ...]) -> None:
        """From now on ``selected`` live in the reservation, and they and the constants are persistent."""
        allocations = self.program.allocations
        self.selected = tuple(sorted(selected))
        self.placed = frozenset(i for i in self.selected if allocations[i].is_preallocated_temp_buffer)
        self.aliased = tuple(i for i in self.selected if i not in self.placed)
        self.sources_of, self.sources = select(self.aliased), ()
        self.persistent = PersistentSet((*self.program.classification.constants, *selected))

    def demote(self, demotion: Demotion) -> None:
        """The guard takes an allocation out of the remapped set; its slot stays unused."""
        self.demotions = (*self.demotions, demotion)
        self.select(tuple(index for index in self.selected if index != demotion.allocation))

    def snapshot(self) -> RemappingSnapshot:
        """The state now; never waits for an execution."""
        classification, profile, persistent = self.program.classification, self.profile, self.persistent
        reservation = self.reservation
        return RemappingSnapshot(
            module=self.program.module,
            device=self.executor.device_ordinal,
            mode=classification.mode.name,
            phase=_phase(self).value,
            steps=profile.steps,
            limit=classification.policy.profile_steps,
            executions=self.executions,
            failures=self.failures,
            selected=self.selected,
            persistent=persistent.indices,
            reserved_bytes=reservation.address.size if reservation is not None else 0,
            allocations=tuple(self._allocation_states()),
            demotions=self.demotions,
        )

    def _allocation_states(self) -> Iterator[AllocationState]:
        program, profile, verdicts = self.program, self.profile, self.verdicts
        selected, demoted = self.selected, {each.allocation: each.reason for each in self.demotions}
        for verdict in program.classification.verdicts:
            index = verdict.allocation
            state, reason = verdict.role.value, verdict.reason.value
            if index in program.classification.candidates:
                candidate = verdicts.get(index) or profile.verdict(index)
                state, reason = _CANDIDATE_STATES[candidate.remapped], candidate.reason.value
            elif index in selected:
                state = "remapped"
            if index in demoted:
                state, reason = "demoted", demoted[index]
            yield AllocationState(
                index,
                program.allocations[index].size,
                verdict.role.value,
                state,
                reason,
                program.paths.get(index, ""),
            )

    def close(self) -> None:
        """Completes what the device still has pending and gives the reservation back."""
        with self.lock:
            self.is_closed = True
            reservation, self.reservation, self.layout = self.reservation, None, None
            if reservation is not None:
                self.allocator.synchronize_pending_operations(self.executor.device_ordinal)
                reservation.close()


_CANDIDATE_STATES = {None: "profiling", True: "remapped", False: "rejected"}


def _phase(remapping: Remapping) -> ProfilePhase:
    if remapping.program.classification.policy.profile_steps:
        return remapping.profile.phase
    return ProfilePhase.ACTIVE if remapping.selected else ProfilePhase.DISABLED


class LoadedExecutable(Protocol):
    """What the registry knows of a loaded program."""

    def evict_command_buffers(self) -> None:
        """Releases the device command buffers; they are recorded again at the next use."""


class ProfileRegistry:
    """All remappings of a process or session: (executable, device) -> ``Remapping``.

    An executable is told apart by identity and held weakly: when it dies its remappings go, at the latest at
    the registry's next call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._remappings: dict[tuple[int, se.StreamExecutor], Remapping] = {}
        self._dead: deque[Remapping] = deque()
        self._loaded: weakref.WeakSet[LoadedExecutable] = weakref.WeakSet()

    def acquire(
        self,
        executable: object,
        program: Program,
        allocator: DeviceAddressVmmAllocator,
        executor: se.StreamExecutor,
    ) -> Remapping:
        """The remapping of ``executable`` on a device, with its lock taken; created at the first call."""
        while True:
            remapping = self._find_or_create(executable, program, allocator, executor)
            remapping.lock.acquire()
            if not remapping.is_closed:
                return remapping
            # It was reset while this thread waited.
            remapping.lock.release()

    def _find_or_create(
        self,
        executable: object,
        program: Program,
        allocator: DeviceAddressVmmAllocator,
        executor: se.StreamExecutor,
    ) -> Remapping:
        key = (id(executable), executor)
        found = self._remappings.get(key)
        if found is not None:
            return found
        self._bury()
        with self._lock:
            found = self._remappings.get(key)
            if found is None:
                found = self._remappings[key] = Remapping(program, allocator, executor)
                weakref.finalize(executable, partial(self._drop, key)).atexit = False
        return found

    def loaded(self, executable: LoadedExecutable) -> None:
        """A program was loaded: the command buffers of all others are evicted, as XLA does to save device
        memory.
        """
        with self._lock:
            others = list(self._loaded)
            self._loaded.add(executable)
        for other in others:
            other.evict_command_buffers()

    def unload(self, executable: LoadedExecutable) -> None:
        """Forgets a program and its remappings on all devices; waits for its running executions."""
        with self._lock:
            self._loaded.discard(executable)
            keys = [key for key in self._remappings if key[0] == id(executable)]
            dropped = [self._remappings.pop(key) for key in keys]
        for remapping in dropped:
            remapping.close()

    def snapshots(self) -> tuple[RemappingSnapshot, ...]:
        """Every remapping as it stands now; never waits for an execution."""
        self._bury()
        return tuple(remapping.snapshot() for remapping in list(self._remappings.values()))

    def export_json(self) -> str:
        """All snapshots as JSON text: ``{"profiles": [...]}``."""
        return json.dumps({"profiles": [snapshot.to_json() for snapshot in self.snapshots()]}, indent=1)

    def reset(self, module: str | None = None) -> int:
        """Forgets remappings, so that profiling starts again; waits for their running executions.

        Args:
          module: only those of this HLO module; None: all.

        Returns:
          How many were forgotten.

        Raises:
          InputError: no remapping of that module exists.
        """
        self._bury()
        with self._lock:
            keys = [
                key
                for key, remapping in self._remappings.items()
                if module is None or remapping.program.module == module
            ]
            dropped = [self._remappings.pop(key) for key in keys]
        if module is not None and not dropped:
            known = sorted({remapping.program.module for remapping in self._remappings.values()})
            raise InputError(f"no profile of module {module!r}; there are {', '.join(known) or 'none'}")
        for remapping in dropped:
            remapping.close()
        # Command buffers hold addresses of the reservations that went.
        for executable in list(self._loaded):
            executable.evict_command_buffers()
        return len(dropped)

    def close(self) -> None:
        """Releases every remapping's reservation."""
        self.reset()

    def _drop(self, key: tuple[int, se.StreamExecutor]) -> None:
        # Runs inside the garbage collector, in any thread: no lock may be taken here.
        remapping = self._remappings.pop(key, None)
        if remapping is not None:
            self._dead.append(remapping)

    def _bury(self) -> None:
        while self._dead:
            try:
                remapping = self._dead.popleft()
            except IndexError:
                return
            remapping.close()
