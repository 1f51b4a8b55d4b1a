"""The state that remapping one program on one device needs: profile, layout, reservation, lock.

Mirrors the per-executor state of ``xla/service/gpu/gpu_executable_va_remap_allocator.cc``. Invariant: it
changes only under its lock, which an execution holds from start to end, and every attribute that a snapshot
reads is replaced by a new immutable value, never edited. The persistent set goes from unknown to known once;
only the guard may shrink it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from jax_cmdbuf.events import Event, NotVmmBacked, SharedBuffer, TransitionActive, TransitionDisabled
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.runtime.buffer_allocations import PersistentSet, select
from jax_cmdbuf.runtime.guard import Moves
from jax_cmdbuf.runtime.policy import Classification
from jax_cmdbuf.runtime.profiling import (
    CandidateReason,
    CandidateVerdict,
    Profile,
    ProfilePhase,
    Transition,
    begin,
    transition,
)
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import MemoryReservation
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator

__all__ = ["Demotion", "Layout", "Program", "Remapping", "Slot", "lay_out"]


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
      unreleased: aliases whose release was refused twice.
      unfreed: buffers of executions whose free was refused twice.
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
        self.unfreed: list[DeviceAddress] = []
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

    def decide(self) -> list[Event]:
        """Ends profiling: selects what is remapped from now on, and returns the events that tell it."""
        program, ordinal = self.program, self.executor.device_ordinal
        result = transition(
            self.profile,
            program.classification,
            program.allocations,
            lambda address: self.allocator.is_exact_address(ordinal, address),
        )
        self.verdicts = {verdict.allocation: verdict for verdict in result.verdicts}
        self.select((*program.classification.va_remapped, *result.selected))
        self.profile = result.profile
        return list(_events_of(program, result))

    def demote(self, demotion: Demotion) -> None:
        """The guard takes an allocation out of the remapped set; its slot stays unused."""
        self.demotions = (*self.demotions, demotion)
        self.select(tuple(index for index in self.selected if index != demotion.allocation))

    def free_leftovers(self) -> None:
        """Tries again to release the aliases and buffers that an earlier execution could not.

        Raises:
          StatusError: it is refused again.
        """
        while self.unreleased and self.layout is not None and self.reservation is not None:
            slot = self.layout.slots[self.unreleased[-1]]
            self.allocator.unmap(self.executor.device_ordinal, self.reservation, slot.offset, slot.size)
            self.unreleased.pop()
        while self.unfreed:
            self.allocator.deallocate(self.executor.device_ordinal, self.unfreed[-1])
            self.unfreed.pop()

    def close(self) -> None:
        """Completes what the device still has pending and gives the reservation back.

        Raises:
          StatusError: the driver refused; closing again tries the rest.
        """
        with self.lock:
            self.is_closed = True
            self.free_leftovers()
            if self.reservation is not None:
                self.allocator.synchronize_pending_operations(self.executor.device_ordinal)
                self.reservation.close()
            self.reservation, self.layout = None, None


def _events_of(program: Program, result: Transition) -> Iterator[Event]:
    module, classification = program.module, program.classification
    for verdict in result.verdicts:
        if verdict.reason is CandidateReason.NOT_VMM_BACKED:
            address = result.profile.last_observed[verdict.allocation].opaque
            yield NotVmmBacked(module, verdict.allocation, address)
    for verdict in result.verdicts:
        if verdict.reason is CandidateReason.SHARED_BUFFER:
            yield SharedBuffer(module, verdict.allocation)
    if result.profile.phase is ProfilePhase.ACTIVE:
        automatic, candidates = len(classification.va_remapped), len(classification.candidates)
        yield TransitionActive(module, automatic, len(result.selected), candidates, result.profile.steps)
    else:
        yield TransitionDisabled(module)
