"""Small programs on a simulated device, and what an execution of them saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.events import Event, EventLog
from jax_cmdbuf.executable.buffers import Access, BufferAllocation, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.conversion import CommandBuffer, Conversion
from jax_cmdbuf.executable.executable import Executable, Output
from jax_cmdbuf.executable.thunks import Thunk, ThunkKind
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.execution_scope import RunOptions, open_scope
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable, Injection
from jax_cmdbuf.runtime.guard import FIDELITY, Guard
from jax_cmdbuf.runtime.policy import classify
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.remapping import Program
from jax_cmdbuf.stream_executor.deferred_operations import BatchLimits
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, StreamMode
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from xla_flags.options import CommandBufferUpdateMode as Mode


def parameter(index: int, number: int | None = None, size: int = 1000, **flags: bool) -> BufferAllocation:
    return BufferAllocation(index, size, parameter_number=index if number is None else number, **flags)


def output(index: int, size: int = 1000) -> BufferAllocation:
    return BufferAllocation(index, size, maybe_live_out=True)


def temp(index: int, size: int = 1000) -> BufferAllocation:
    return BufferAllocation(index, size)


def constant(index: int, size: int = 64) -> BufferAllocation:
    return BufferAllocation(index, size, is_constant=True)


def kernel(
    identifier: int, reads: Sequence[int], writes: Sequence[int], size: int = 64, kind: str = "kCustomKernel"
) -> Thunk:
    uses = [BufferUse(BufferAllocationSlice(i, 0, size), Access.READ) for i in reads]
    uses += [BufferUse(BufferAllocationSlice(i, 0, size), Access.WRITE) for i in writes]
    return Thunk(ThunkKind(kind), identifier, f"thunk.{identifier}", tuple(uses))


def command_buffer(*thunks: Thunk) -> Thunk:
    return Thunk(ThunkKind("kCommandBuffer"), -1, f"command_buffer_{thunks[0].id}", (), (thunks,))


def converted(sequence: Sequence[Thunk]) -> Conversion:
    """The conversion whose command buffers are those written in ``sequence``."""
    buffers = tuple(
        CommandBuffer(each.nested[0], (), each.allocations)
        for top in sequence
        for each in top.walk()
        if each.kind == "kCommandBuffer"
    )
    return Conversion(tuple(sequence), buffers)


def executable(allocations: Sequence[BufferAllocation], sequence: Sequence[Thunk]) -> Executable:
    outputs = tuple(
        Output((i,), each.index) for i, each in enumerate(a for a in allocations if a.maybe_live_out)
    )
    if len(outputs) == 1:
        outputs = (Output((), outputs[0].allocation),)
    return Executable("jit_test", tuple(allocations), tuple(sequence), outputs=outputs)


def program(
    allocations: Sequence[BufferAllocation], mode: Mode, used: Sequence[int] | None = None
) -> Program:
    indices = range(len(allocations)) if used is None else used
    return Program("jit_test", tuple(allocations), classify(allocations, indices, mode))


# What tests build programs with; a fixture, because test modules cannot import one another.
MAKE = SimpleNamespace(
    parameter=parameter,
    output=output,
    temp=temp,
    constant=constant,
    kernel=kernel,
    command_buffer=command_buffer,
    converted=converted,
    executable=executable,
    program=program,
)


@dataclass
class Seen:
    """What one execution did."""

    events: tuple[Event, ...] = ()
    outputs: tuple[DeviceAddress, ...] | None = None
    error: StatusError | None = None
    owning: BufferAllocations | None = None
    table: BufferAllocations | None = None
    persistent: PersistentSet | None = None

    @property
    def kinds(self) -> list[str]:
        """Kinds of the events, the allocator's left out."""
        return [event.kind for event in self.events if event.kind not in ("allocate", "deallocate")]


@dataclass
class World:
    """A simulated device with allocator, registry and log."""

    mode: StreamMode = StreamMode.AUTO
    batch: BatchLimits = field(default_factory=lambda: BatchLimits(1, 64 << 20))

    def __post_init__(self) -> None:
        self.executor = SimulatedExecutor()
        self.stream = self.executor.create_stream(self.mode)
        self.log = EventLog()
        self.allocator = DeviceAddressVmmAllocator([DeviceConfig(self.stream, batch=self.batch)], self.log)
        self.registry = ProfileRegistry()
        self.loaded: list[GpuExecutable] = []

    def options(self, seen: Seen, guard: Guard = FIDELITY) -> RunOptions:
        def on_tables(owning: BufferAllocations, table: BufferAllocations, persistent: PersistentSet) -> None:
            seen.owning, seen.table, seen.persistent = owning, table, persistent
            self.stream.check_aliases(
                [(a, o) for a, o in zip(table.addresses, owning.addresses, strict=True) if a != o]
            )

        return RunOptions(self.allocator, self.stream, self.log, guard, on_tables)

    def load(
        self, allocations: Sequence[BufferAllocation], sequence: Sequence[Thunk], mode: Mode
    ) -> GpuExecutable:
        self.loaded.append(
            GpuExecutable(executable(allocations, sequence), converted(sequence), mode, self.registry)
        )
        return self.loaded[-1]

    def run(
        self,
        loaded: GpuExecutable,
        *parameters: DeviceAddress,
        guard: Guard = FIDELITY,
        donated: frozenset[int] | None = None,
        injection: Injection | None = None,
    ) -> Seen:
        """Executes a program; its results stay with the caller."""
        seen = Seen()
        self.log.drain()
        try:
            seen.outputs = loaded.execute(self.options(seen, guard), parameters, donated, injection).outputs
        except StatusError as error:
            seen.error = error
        seen.events = self.log.drain()
        return seen

    def run_and_free(self, loaded: GpuExecutable, *parameters: DeviceAddress, **how: object) -> Seen:
        """Executes a program and frees its results."""
        seen = self.run(loaded, *parameters, **how)  # type: ignore[arg-type]
        for address in seen.outputs or ():
            self.free(address)
        return seen

    def scope(
        self,
        owner: object,
        program: Program,
        parameters: dict[int, DeviceAddress],
        replace: dict[int, DeviceAddress] | None = None,
        body: Callable[[BufferAllocations, PersistentSet], None] = lambda table, persistent: None,
        guard: Guard = FIDELITY,
    ) -> Seen:
        """One execution on the level of scopes; ``replace`` stands for copy protection. Frees what it
        allocated.
        """
        seen = Seen()
        self.log.drain()
        with open_scope(owner, program, self.registry, self.options(seen, guard)) as scope:
            owning = scope.generate_buffer_allocations(parameters, {})
            mine = [owning[index] for index in program.owned]
            owning = owning.with_addresses(replace or {})
            try:
                scope.execute(owning, body)
            except StatusError as error:
                seen.error = error
            finally:
                for address in mine:
                    scope.deallocate(address)
        assert seen.owning is None or seen.owning == owning
        seen.owning = owning
        seen.events = self.log.drain()
        return seen

    def allocate(self, size: int = 1000) -> DeviceAddress:
        return self.allocator.allocate(0, size)

    def free(self, address: DeviceAddress) -> None:
        self.allocator.deallocate(0, address)

    def reservation_mappings(self) -> int:
        """Mappings in reservations that are left when everything pending is done."""
        self.allocator.synchronize_pending_operations(0)
        return self.allocator.statistics(0).active_aliases

    def close(self) -> None:
        for loaded in self.loaded:
            loaded.close()
        self.registry.close()
        self.allocator.close()


@pytest.fixture(scope="session")
def make():
    return MAKE


@pytest.fixture(scope="session")
def new_world():
    """Makes worlds for tests that need several; the test closes them."""
    return World


@pytest.fixture(scope="session")
def new_seen():
    return Seen


@pytest.fixture
def world():
    """A world that must be empty when it is closed."""
    made = World()
    yield made
    made.close()
    assert made.executor.memory.is_empty
