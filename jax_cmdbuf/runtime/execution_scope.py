"""One execution's memory: allocate, alias into the reservation, run, release; whatever happens on the way.

Mirrors ``ExecutionScope`` of ``xla/service/gpu/gpu_executable_buffer_allocator.h`` and of
``gpu_executable_va_remap_allocator.cc``. Invariants: the owning table is never changed by running; every
alias is released when the scope ends, or kept with the remapping and tried again; what a scope locks it
unlocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.events import Demote, EventSink, ExecuteRemapped, ProfileStep, Reserve
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.guard import FIDELITY, Guard
from jax_cmdbuf.runtime.profiling import ProfilePhase, is_due, observe
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.remap_errors import (
    AllocatorChangedError,
    GranularityChangedError,
    NullBufferError,
    StreamMismatchError,
)
from jax_cmdbuf.runtime.remapping import Demotion, Program, Remapping, lay_out
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator

__all__ = [
    "DeviceAddressAllocator",
    "ExecutionScope",
    "RemappedScope",
    "RunOptions",
    "open_scope",
]


class DeviceAddressAllocator(Protocol):
    """What any device memory allocator offers, the VMM allocator among them."""

    def allocate(self, device_ordinal: int, size: int) -> DeviceAddress:
        """Memory of ``size`` bytes."""

    def deallocate(self, device_ordinal: int, address: DeviceAddress) -> None:
        """Gives memory back."""


# Owning table, execution table, persistent set.
OnTables = Callable[[BufferAllocations, BufferAllocations, PersistentSet], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where an execution runs.

    Attributes:
      allocator: where its buffers come from; remapping needs a ``DeviceAddressVmmAllocator``.
      stream: where its work goes; its executor is the device.
      sink: takes the events.
      guard: what to do where XLA would fail or thrash; ``FIDELITY`` does what XLA does.
      on_tables: called before each execution with the owning table, the execution table and the persistent
        set. Where the tables differ, both addresses must lead to the same physical memory, which a simulated
        device can check.
    """

    allocator: DeviceAddressAllocator
    stream: se.Stream
    sink: EventSink
    guard: Guard = FIDELITY
    on_tables: OnTables | None = None

    @property
    def device_ordinal(self) -> int:
        """The device's number."""
        return self.stream.executor.device_ordinal


# Runs the program on an execution table with a persistent set.
Body = Callable[[BufferAllocations, PersistentSet], None]


class ExecutionScope:
    """The base scope: no remapping, constants are persistent. Use it as a context manager."""

    def __init__(self, program: Program, options: RunOptions) -> None:
        self.program = program
        self.options = options
        self._ordinal = options.device_ordinal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to release."""

    def generate_buffer_allocations(
        self, parameters: Mapping[int, DeviceAddress], constants: Mapping[int, DeviceAddress]
    ) -> BufferAllocations:
        """The owning table: callers' buffers, constants, and fresh memory for the rest, in index order.

        Args:
          parameters: allocation index -> the caller's buffer, of results too where the caller has them.
          constants: allocation index -> where the loaded program keeps it.

        Raises:
          StatusError: an allocation failed; what was allocated before it is freed.
        """
        addresses = [NULL_ADDRESS] * len(self.program.allocations)
        for given in (parameters, constants):
            for index, address in given.items():
                addresses[index] = address
        done: list[int] = []
        try:
            for index in self.program.owned:
                if index not in parameters:
                    addresses[index] = self._allocate(index)
                    done.append(index)
        except BaseException:
            for index in done:
                self.deallocate(addresses[index])
            raise
        return BufferAllocations(addresses)

    def execute(self, owning: BufferAllocations, body: Body) -> None:
        """Runs ``body`` on what the execution may see; ``owning`` keeps its addresses."""
        self._run(body, owning, owning, self.program.constants_persistent)

    def _run(
        self, body: Body, owning: BufferAllocations, table: BufferAllocations, persistent: PersistentSet
    ) -> None:
        if self.options.on_tables is not None:
            self.options.on_tables(owning, table, persistent)
        body(table, persistent)

    def deallocate(self, address: DeviceAddress) -> None:
        """Frees a buffer of this execution; the null address is skipped. A refused free is tried once more.

        Raises:
          StatusError: it was refused again. A remapping keeps the buffer and tries when it is used next or
            closed; without remapping it stays allocated until the allocator is closed.
        """
        if address.is_null:
            return
        try:
            self.options.allocator.deallocate(self._ordinal, address)
        except StatusError:
            # An alias whose release was refused may stand in the way, or the timeline write of an earlier
            # free.
            self.retry_releases()
            self.options.allocator.deallocate(self._ordinal, address)

    def retry_releases(self) -> None:
        """Tries again to release aliases whose release was refused."""

    def allocate_copy(self, index: int) -> DeviceAddress:
        """Memory for a copy of a caller's buffer that the program writes and the caller keeps."""
        return ExecutionScope._allocate(self, index)

    def _allocate(self, index: int) -> DeviceAddress:
        return self.options.allocator.allocate(self._ordinal, self.program.allocations[index].size)


class RemappedScope(ExecutionScope):
    """The scope of an execution whose remapping profiles or is active; holds its lock until it ends."""

    def __init__(
        self, remapping: Remapping, allocator: DeviceAddressVmmAllocator, options: RunOptions
    ) -> None:
        super().__init__(remapping.program, options)
        self._remapping = remapping
        self._allocator = allocator
        # Allocations whose slot holds an alias to release.
        self._aliases: list[int] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tries once more to release what could not be released, then lets the next execution in."""
        try:
            self.retry_releases()
            self._remapping.unreleased += self._aliases
            if error is not None:
                self._remapping.failures += 1
        finally:
            self._remapping.lock.release()

    @property
    def _is_profiling(self) -> bool:
        return self._remapping.profile.phase is ProfilePhase.PROFILING

    def prepare(self) -> None:
        """Reserves addresses for the remapped allocations, once.

        Raises:
          GranularityChangedError: the device's granularity is not the one of the reservation.
          StatusError: the range cannot be reserved.
        """
        remapping, granularity = self._remapping, self._allocator.granularity(self._ordinal)
        if remapping.layout is not None:
            if remapping.layout.granularity != granularity:
                raise GranularityChangedError(self.program.module, remapping.layout.granularity, granularity)
            return
        if self._is_profiling or not remapping.selected:
            return
        layout = lay_out(self.program, remapping.selected, granularity)
        try:
            reservation = self._allocator.create_reservation(self._ordinal, layout.total_size)
        except StatusError as error:
            for index in remapping.selected:
                self._demote_or_raise(index, error)
            return
        remapping.layout, remapping.reservation = layout, reservation
        self.options.sink.emit(
            Reserve(self.program.module, reservation.address.opaque, layout.total_size, granularity)
        )

    def execute(self, owning: BufferAllocations, body: Body) -> None:
        """Profiles, or maps the selected inputs and outputs and runs on their reservation addresses.

        The execution's own error wins over one from releasing aliases, which is then attached as a note.

        Raises:
          NullBufferError: a selected input or output is null; nothing is executed.
          StatusError: mapping failed and nothing is executed; or releasing an alias failed after the
            execution.
        """
        if self._is_profiling:
            self._run(body, owning, owning, PersistentSet.UNKNOWN)
            self._observe(owning)
            return
        remapping = self._remapping
        if remapping.selected:
            self.options.sink.emit(ExecuteRemapped(self.program.module, len(remapping.selected)))
        failure: BaseException | None = None
        try:
            table = self._map_aliases(owning)
            self._run(body, owning, table, remapping.persistent)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._aliases, release_error = self._release_aliases()
            if release_error is not None:
                if failure is None:
                    raise release_error
                failure.add_note(f"and then {release_error}")

    def retry_releases(self) -> None:
        """See the base class."""
        if self._aliases:
            self._aliases, _ = self._release_aliases()

    def deallocate(self, address: DeviceAddress) -> None:
        """See the base class."""
        try:
            super().deallocate(address)
        except StatusError:
            self._remapping.unfreed.append(address)
            raise

    def _observe(self, owning: BufferAllocations) -> None:
        remapping, classification = self._remapping, self.program.classification
        addresses = {index: owning[index] for index in classification.candidates}
        remapping.profile = observe(remapping.profile, addresses)
        self.options.sink.emit(
            ProfileStep(self.program.module, remapping.profile.steps, classification.policy.profile_steps)
        )

    def _allocate(self, index: int) -> DeviceAddress:
        remapping = self._remapping
        if index in remapping.placed and remapping.layout is not None and remapping.reservation is not None:
            slot = remapping.layout.slots[index]
            try:
                return self._allocator.allocate_at(
                    self._ordinal, slot.size, remapping.reservation, slot.offset
                )
            except StatusError as error:
                self._demote_or_raise(index, error)
        return super()._allocate(index)

    def _map_aliases(self, owning: BufferAllocations) -> BufferAllocations:
        remapping, ordinal, reservation = self._remapping, self._ordinal, self._remapping.reservation
        self._demote_restless(owning)
        if reservation is None or remapping.layout is None:
            return owning
        slots, map_, aliases = remapping.layout.slots, self._allocator.map, self._aliases
        addresses = list(owning.addresses)
        for index in remapping.aliased:
            slot, source = slots[index], addresses[index]
            try:
                if not source.opaque:
                    raise NullBufferError(self.program.module, index)
                addresses[index] = map_(ordinal, source, reservation, slot.offset, slot.size)
            except StatusError as error:
                self._demote_or_raise(index, error)
            else:
                aliases.append(index)
        return BufferAllocations(addresses)

    def _release_aliases(self) -> tuple[list[int], StatusError | None]:
        """Unmaps; returns the aliases that could not be released, and the first error."""
        remapping = self._remapping
        aliases, self._aliases = self._aliases, []
        kept: list[int] = []
        first: StatusError | None = None
        if aliases and remapping.reservation is not None and remapping.layout is not None:
            slots, unmap = remapping.layout.slots, self._allocator.unmap
            for index in aliases:
                slot = slots[index]
                try:
                    unmap(self._ordinal, remapping.reservation, slot.offset, slot.size)
                except StatusError as error:
                    kept.append(index)
                    first = first or error
        return kept, first

    # The guard

    def _demote_restless(self, owning: BufferAllocations) -> None:
        remapping = self._remapping
        sources = remapping.sources_of(owning.addresses)
        if sources == remapping.sources:
            return
        moved = [
            index
            for index, new, old in zip(remapping.aliased, sources, remapping.sources, strict=False)
            if new != old
        ]
        remapping.sources = sources
        for index in moved:
            reason = self.options.guard.moved(remapping.moves, index, remapping.executions)
            if reason is not None:
                self._demote(index, reason)

    def _demote_or_raise(self, index: int, error: StatusError) -> None:
        reason = self.options.guard.failed(error)
        if reason is None:
            raise error
        self._demote(index, reason)

    def _demote(self, index: int, reason: str) -> None:
        self._remapping.demote(Demotion(index, reason))
        self.options.sink.emit(Demote(self.program.module, index, reason))


def open_scope(
    executable: object, program: Program, registry: ProfileRegistry, options: RunOptions
) -> ExecutionScope:
    """The scope for one execution; enter it before use.

    Profiling starts and ends here. When it returns a ``RemappedScope`` its lock is taken.

    Raises:
      StreamMismatchError: the allocator's stream is not the run's.
      AllocatorChangedError: the executable ran with another VMM allocator before.
      GranularityChangedError: see ``RemappedScope.prepare``.
      StatusError: the address range cannot be reserved.
    """
    allocator, classification = options.allocator, program.classification
    if not (classification.va_remapped or classification.candidates):
        return ExecutionScope(program, options)
    if not isinstance(allocator, DeviceAddressVmmAllocator):
        return ExecutionScope(program, options)
    if allocator.stream(options.device_ordinal) is not options.stream:
        raise StreamMismatchError(program.module)
    remapping = registry.acquire(executable, program, allocator, options.stream.executor)
    try:
        if remapping.allocator is not allocator:
            raise AllocatorChangedError(program.module)
        remapping.begin()
        if is_due(remapping.profile, classification):
            for event in remapping.decide():
                options.sink.emit(event)
        if remapping.is_disabled:
            remapping.lock.release()
            return ExecutionScope(program, options)
        remapping.free_leftovers()
        scope = RemappedScope(remapping, allocator, options)
        scope.prepare()
        return scope
    except BaseException:
        remapping.lock.release()
        raise
