"""Drives the allocator with random programs against a model of what must be live, on a strict device.

The model knows which buffers are live, which slots are in use and in which order frees are pending; the
allocator must agree after every step, whatever fails in between, and leave nothing behind at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.deferred_operations import BatchLimits
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import DriverError, MemoryReservation
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, StreamMode
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig

GRANULE = 2 << 20
SLOTS = 4
DRIVER_CALLS = (
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuStreamWriteValue64",
)

T = TypeVar("T")


@dataclass
class Outcome(Generic[T]):
    """How a call went: its value, the code it was refused with, or that the injected failure hit it."""

    value: T | None = None
    code: StatusCode | None = None
    injected: bool = False


@dataclass
class Buffer:
    """A live buffer of the model; ``slot`` is where it was placed, ``alias`` where it is mapped as well."""

    address: DeviceAddress
    device_count: int
    slot: int | None = None
    alias: int | None = None

    @property
    def granules(self) -> int:
        return round_up(self.address.size, GRANULE) // GRANULE


class AllocatorMachine(RuleBasedStateMachine):
    """One allocator, one reservation of four slots."""

    @initialize(
        budget=st.sampled_from([None, 5 * GRANULE, 9 * GRANULE]),
        mode=st.sampled_from([StreamMode.AUTO, StreamMode.ON_WAIT]),
        batch=st.sampled_from([BatchLimits(1, 1), BatchLimits(3, 2 * GRANULE), BatchLimits(64, 64 << 20)]),
    )
    def start(self, budget: int | None, mode: StreamMode, batch: BatchLimits) -> None:
        self.budget = budget
        self.executor = SimulatedExecutor()
        self.stream = self.executor.create_stream(mode)
        self.allocator = DeviceAddressVmmAllocator([DeviceConfig(self.stream, budget, batch)])
        self.reservation: MemoryReservation = self.allocator.create_reservation(0, SLOTS * GRANULE)
        self.live: list[Buffer] = []
        self.pending: list[Buffer] = []  # ordinary buffers, oldest free first
        self.used: set[int] = set()  # granules of the reservation in active use
        self.armed = False

    def attempt(self, call: Callable[[], T]) -> Outcome[T]:
        """Runs a call. Whatever refuses it, live buffers and aliases are as before."""
        before = self.allocator.statistics(0)
        try:
            return Outcome(call())
        except StatusError as error:
            refusal = error
        after = self.allocator.statistics(0)
        assert (before.active, before.active_aliases) == (after.active, after.active_aliases), refusal
        if isinstance(refusal, DriverError):
            # Nothing but an injected failure makes this device refuse what the allocator asks for.
            assert self.armed, refusal
            self.armed = False
            return Outcome(injected=True)
        return Outcome(code=refusal.code)

    def in_use(self) -> int:
        return sum(buffer.granules for buffer in self.live) * GRANULE

    def check_refusal(self, outcome: Outcome[Any], wanted: set[int], size: int = 0) -> None:
        """What may refuse a request for these granules of the reservation and ``size`` more bytes."""
        if outcome.code is StatusCode.RESOURCE_EXHAUSTED:
            assert self.budget is not None
            assert self.in_use() + size > self.budget
        elif outcome.code is StatusCode.INVALID_ARGUMENT:
            assert max(wanted) >= SLOTS
        elif outcome.code is StatusCode.ALREADY_EXISTS:
            assert wanted & self.used
        else:
            assert outcome.injected or outcome.code is StatusCode.FAILED_PRECONDITION

    # Allocation

    @rule(size=st.integers(1, 3 * GRANULE), device_count=st.sampled_from([1, 1, 1, 2]))
    def allocate(self, size: int, device_count: int) -> None:
        rounded = round_up(size, GRANULE)
        self.pending = [b for b in self.pending if self.allocator.is_exact_address(0, b.address)]
        fits = [b for b in self.pending if b.granules * GRANULE == rounded and b.device_count == device_count]
        outcome = self.attempt(lambda: self.allocator.allocate(0, size, device_count))
        if outcome.value is None:
            self.check_refusal(outcome, set(), rounded)
            return
        assert outcome.value.size == size
        if fits:
            assert outcome.value.opaque == fits[0].address.opaque
            self.pending.remove(fits[0])
        self.live.append(Buffer(outcome.value, device_count))

    @rule(slot=st.integers(0, SLOTS - 1), granules=st.integers(1, 2), device_count=st.sampled_from([1, 1, 2]))
    def allocate_at(self, slot: int, granules: int, device_count: int) -> None:
        size, wanted = granules * GRANULE, set(range(slot, slot + granules))
        outcome = self.attempt(
            lambda: self.allocator.allocate_at(0, size, self.reservation, slot * GRANULE, device_count)
        )
        if outcome.value is None:
            self.check_refusal(outcome, wanted, size)
            return
        assert not wanted & self.used
        assert outcome.value == self.reservation.address.slice(slot * GRANULE, size)
        self.used |= wanted
        self.live.append(Buffer(outcome.value, device_count, slot))

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 99))
    def deallocate(self, index: int) -> None:
        buffer = self.live[index % len(self.live)]
        outcome = self.attempt(lambda: self.allocator.deallocate(0, buffer.address))
        if outcome.injected:
            return
        assert (outcome.code is StatusCode.FAILED_PRECONDITION) == (buffer.alias is not None)
        if outcome.code is None:
            self.live.remove(buffer)
            if buffer.slot is None:
                self.pending.append(buffer)
            else:
                self.used -= set(range(buffer.slot, buffer.slot + buffer.granules))

    # Aliases

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 99), slot=st.integers(0, SLOTS - 1))
    def map(self, index: int, slot: int) -> None:
        buffer = self.live[index % len(self.live)]
        wanted = set(range(slot, slot + buffer.granules))
        size = buffer.granules * GRANULE
        outcome = self.attempt(
            lambda: self.allocator.map(0, buffer.address, self.reservation, slot * GRANULE, size)
        )
        if outcome.value is None:
            if buffer.alias is None:
                self.check_refusal(outcome, wanted)
            return
        assert buffer.alias is None
        assert not wanted & self.used
        buffer.alias = slot
        self.used |= wanted

    @precondition(lambda self: any(b.alias is not None for b in self.live))
    @rule(index=st.integers(0, 99))
    def unmap(self, index: int) -> None:
        aliased = [b for b in self.live if b.alias is not None]
        buffer = aliased[index % len(aliased)]
        slot, size = buffer.alias, buffer.granules * GRANULE
        assert slot is not None
        outcome = self.attempt(lambda: self.allocator.unmap(0, self.reservation, slot * GRANULE, size))
        assert outcome.code is None
        if not outcome.injected:
            buffer.alias = None
            self.used -= set(range(slot, slot + buffer.granules))

    @rule(slot=st.integers(0, SLOTS - 1))
    def unmap_what_is_no_alias(self, slot: int) -> None:
        if any(b.alias == slot and b.granules == 1 for b in self.live):
            return
        outcome = self.attempt(lambda: self.allocator.unmap(0, self.reservation, slot * GRANULE, GRANULE))
        refusals = (StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION, StatusCode.INVALID_ARGUMENT)
        assert outcome.code in refusals

    # The device

    @rule(label=st.sampled_from(["kernel", "copy"]))
    def submit(self, label: str) -> None:
        self.stream.submit([b.address for b in self.live] + self.alias_addresses(), label)

    @rule(entries=st.integers(1, 5))
    def advance(self, entries: int) -> None:
        self.stream.advance(entries)

    @rule()
    def synchronize(self) -> None:
        self.attempt(lambda: self.allocator.synchronize_pending_operations(0))

    @precondition(lambda self: not self.armed)
    @rule(call=st.sampled_from(DRIVER_CALLS), nth=st.integers(1, 2))
    def inject_a_failure(self, call: str, nth: int) -> None:
        self.executor.driver.fail(call, nth)
        self.armed = True

    # What always holds

    def alias_addresses(self) -> list[DeviceAddress]:
        return [
            self.reservation.address.slice(b.alias * GRANULE, b.granules * GRANULE)
            for b in self.live
            if b.alias is not None
        ]

    @invariant()
    def live_buffers_have_memory_of_their_own(self) -> None:
        if not hasattr(self, "live"):
            return
        raw = [self.allocator.get_raw_allocation(0, b.address) for b in self.live]
        assert None not in raw
        assert len({memory.handle for memory in raw if memory}) == len(self.live)
        reached = [self.executor.memory.resolve(b.address) for b in self.live]
        assert [found.handle for found in reached if found] == [memory.handle for memory in raw if memory]

    @invariant()
    def aliases_reach_their_owners(self) -> None:
        if hasattr(self, "live"):
            owners = [b.address for b in self.live if b.alias is not None]
            self.stream.check_aliases(zip(self.alias_addresses(), owners, strict=True))

    @invariant()
    def the_allocator_agrees(self) -> None:
        if not hasattr(self, "live"):
            return
        statistics = self.allocator.statistics(0)
        assert statistics.active == len(self.live)
        assert statistics.active_aliases == len(self.alias_addresses())
        assert self.in_use() <= statistics.allocated == self.executor.memory.used_bytes
        assert self.budget is None or statistics.allocated <= self.budget
        assert self.executor.fault is None
        assert self.executor.memory.needless_unmaps == 0

    def teardown(self) -> None:
        if not hasattr(self, "live"):
            return
        self.executor.driver.fail_nothing()
        self.allocator.close()
        self.stream.synchronize()
        self.reservation.close()
        assert self.executor.memory.is_empty
        assert self.executor.memory.used_bytes == 0
        assert self.executor.memory.needless_unmaps == 0
        assert self.executor.fault is None
