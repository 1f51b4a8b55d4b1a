"""Records, aliases and slots: by themselves, and their moves as ``map`` and ``unmap`` make them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor
from jax_cmdbuf.stream_executor.vmm_records import (
    AllocationKind,
    AllocationRecord,
    ReservationAlias,
    ReservationSlots,
)
from tests.stream_executor.simulated_device import GRANULE


@pytest.fixture
def executor():
    return SimulatedExecutor()


def mapped(executor, granules=1):
    reservation = executor.create_reservation(granules * GRANULE)
    return reservation, reservation.map_to(
        0, granules * GRANULE, executor.create_allocation(granules * GRANULE)
    )


def test_the_kind_follows_from_who_owns_the_range(executor):
    reservation, mapping = mapped(executor)
    own = AllocationRecord(mapping.address, mapping, reservation, False, (GRANULE, False))
    callers = AllocationRecord(mapping.address, mapping, None, False, None)
    assert (own.kind, callers.kind) == (AllocationKind.ALLOCATE, AllocationKind.ALLOCATE_AND_MAP)
    assert own.role == "allocator"
    assert own.reclaimable_bytes == GRANULE


def test_closing_a_record_releases_its_own_range(executor):
    reservation, mapping = mapped(executor)
    AllocationRecord(mapping.address, mapping, reservation, False, (GRANULE, False)).close()
    assert executor.memory.is_empty


def test_closing_a_record_leaves_the_callers_range(executor):
    reservation, mapping = mapped(executor)
    AllocationRecord(mapping.address, mapping, None, False, None).close()
    assert executor.memory.mapping_count == 0
    assert not reservation.closed
    reservation.close()


def test_an_alias_holds_no_memory_of_its_own(executor):
    reservation, mapping = mapped(executor)
    record = AllocationRecord(mapping.address, mapping, reservation, False, (GRANULE, False))
    with executor.create_reservation(GRANULE) as other:
        alias = ReservationAlias(record, other.map_to(0, GRANULE, record.raw_allocation))
        assert (alias.role, alias.reclaimable_bytes, alias.reuse_key) == ("reservation", 0, None)
        alias.close()
        assert executor.memory.used_bytes == GRANULE


class FakeSlot:
    role = "reservation"
    stale_seqno = 0

    def __init__(self, start, size):
        self.address = DeviceAddress(start, size)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4))), st.integers(1, 20), st.integers(1, 4))
def test_find_agrees_with_looking_at_every_slot(ranges, start, size):
    slots, model = ReservationSlots(), []
    for place, length in ranges:
        slot = FakeSlot(place, length)
        if not any(slot.address.overlaps(other.address) for other in model):
            slots.add(slot)
            model.append(slot)
    for slot in model[::3]:
        slots.remove(slot)
        model.remove(slot)
    assert sorted(slot.address.opaque for slot in slots) == sorted(slot.address.opaque for slot in model)
    wanted = DeviceAddress(start, size)
    overlapping = [slot for slot in model if slot.address.overlaps(wanted)]
    if [slot.address for slot in overlapping] == [wanted]:
        assert slots.find(wanted) is overlapping[0]
        assert slots.at(start) is overlapping[0]
    elif overlapping:
        with pytest.raises(StatusError, match="partially overlaps active reservation range") as caught:
            slots.find(wanted)
        assert caught.value.code is StatusCode.FAILED_PRECONDITION
    else:
        assert slots.find(wanted) is None
    assert len(slots) == len(model)


class TestMap:
    def test_an_alias_leads_to_its_source(self, device):
        source = device.allocate(1000)
        alias = device.map(source, 2)
        assert alias == device.reservation.address.slice(2 * GRANULE, GRANULE)
        device.stream.check_aliases([(alias, source)])
        assert device.raw(alias) is device.raw(source)

    def test_a_slot_that_was_allocated_at_can_be_a_source(self, device):
        source = device.allocate_at(0)
        device.stream.check_aliases([(device.map(source, 1), source)])

    def test_nothing_maps_nothing(self, device):
        assert device.map(device.allocate(), 0, 0) == NULL_ADDRESS
        device.unmap(0, 0)
        assert device.allocator.statistics(0).active_aliases == 0

    def test_a_null_source_is_refused(self, device, raises):
        with raises(StatusCode.INVALID_ARGUMENT, "null"):
            device.map(NULL_ADDRESS, 0)

    def test_only_active_allocator_addresses_are_sources(self, device, raises):
        address = device.allocate()
        alias = device.map(device.allocate(), 0)
        device.free(address)
        foreign = device.executor.allocate_foreign(GRANULE)
        for wrong in (address, alias, foreign, DeviceAddress(address.opaque, 5)):
            with raises(StatusCode.NOT_FOUND, "not an active allocator address"):
                device.map(wrong, 1)
        device.executor.free_foreign(foreign)

    def test_the_memory_must_be_large_enough(self, device, raises):
        source = device.allocate_at(3)
        with raises(StatusCode.INVALID_ARGUMENT, "must not exceed"):
            device.map(source, 0, 2 * GRANULE)

    def test_the_slot_must_be_inside_the_reservation(self, device, raises):
        source = device.allocate()
        with raises(StatusCode.INVALID_ARGUMENT, "out of bounds"):
            device.map(source, 4)

    def test_a_source_has_one_active_alias(self, device, raises):
        source = device.allocate()
        device.map(source, 0)
        for slot in (0, 1):
            with raises(StatusCode.ALREADY_EXISTS, "already has an active reservation mapping"):
                device.map(source, slot)

    def test_a_slot_has_one_active_user(self, device, raises):
        first, second = device.allocate(), device.allocate()
        device.map(first, 0)
        device.allocate_at(1)
        for slot in (0, 1):
            with raises(StatusCode.ALREADY_EXISTS, "already tracked"):
                device.map(second, slot)

    def test_an_active_slot_is_refused_before_anything_is_waited_for(self, device, raises):
        first, second = device.allocate(), device.allocate()
        device.map(first, 0)
        device.map(second, 1)
        device.unmap(1)
        with raises(StatusCode.ALREADY_EXISTS):
            device.map(second, 0)
        assert device.allocator.statistics(0).pending == 1

    def test_a_partial_overlap_is_refused(self, device, raises):
        device.map(device.allocate(2 * GRANULE), 0, 2 * GRANULE)
        source = device.allocate()
        for slot in (0, 1):
            with raises(StatusCode.FAILED_PRECONDITION, "active reservation range"):
                device.map(source, slot)

    def test_a_stale_alias_of_the_same_memory_is_taken_back(self, device):
        source = device.allocate()
        device.map(source, 0)
        device.unmap(0)
        before = device.calls(), device.driver.microseconds
        device.map(source, 0)
        assert (device.calls(), device.driver.microseconds) == before
        assert device.allocator.statistics(0).pending == 0

    def test_it_is_taken_back_after_its_source_was_freed_and_reused(self, device):
        source = device.allocate(1000)
        device.map(source, 0)
        device.unmap(0)
        device.free(source)
        again = device.allocate(2000)
        before = device.calls()
        device.map(again, 0)
        assert device.calls() == before

    def test_a_slot_stale_with_other_memory_is_waited_for(self, device):
        first, second = device.allocate(), device.allocate()
        device.map(first, 0)
        device.stream.submit([device.reservation.address.slice(0, GRANULE)])
        device.unmap(0)
        alias = device.map(second, 0)
        device.stream.check_aliases([(alias, second)])
        assert device.driver.microseconds > 100  # two looks at the timeline: the work, then its end
        assert device.executor.fault is None

    def test_a_stale_alias_elsewhere_is_waited_for(self, device):
        source = device.allocate()
        device.map(source, 0)
        device.unmap(0)
        device.map(source, 1)
        assert device.executor.memory.mapping_count == 2

    def test_both_are_waited_for(self, device):
        first, second = device.allocate(), device.allocate()
        for source, slot in ((first, 0), (second, 1)):
            device.map(source, slot)
            device.unmap(slot)
        device.map(first, 1)
        assert device.allocator.statistics(0).pending == 0

    def test_a_stale_allocation_in_the_slot_is_waited_for(self, device):
        device.free(device.allocate_at(0))
        source = device.allocate()
        device.stream.check_aliases([(device.map(source, 0), source)])

    @pytest.mark.parametrize("call", ["cuMemMap", "cuMemSetAccess"])
    def test_a_call_that_fails_midway_leaves_nothing(self, device, raises, call):
        source = device.allocate()
        device.driver.fail(call)
        with raises(StatusCode.INTERNAL):
            device.map(source, 0)
        device.map(source, 0)

    def test_others_who_keep_changing_the_slot_end_in_an_error(self, device):
        sources = [device.allocate() for _ in range(5)]
        wait = device.stream.wait_microseconds

        def interfere(duration):
            # As another thread would, while the lock is given up: the slot is stale again when the wait ends.
            wait(duration)
            if device.stream.pending_count == 0 and len(sources) > 1:
                device.stream.wait_microseconds = wait
                device.map(sources.pop(), 0)
                device.unmap(0)
                device.stream.wait_microseconds = interfere

        device.map(sources.pop(), 0)
        device.unmap(0)
        device.stream.wait_microseconds = interfere
        with pytest.raises(StatusError) as caught:
            device.map(sources[0], 0)
        device.stream.wait_microseconds = wait
        assert caught.value.code is StatusCode.ABORTED


class TestUnmap:
    def test_only_the_exact_range_of_an_alias(self, device, raises):
        device.map(device.allocate(2 * GRANULE), 0, 2 * GRANULE)
        device.allocate_at(2)
        with raises(StatusCode.INVALID_ARGUMENT, "same full reservation range"):
            device.unmap(0)
        for slot in (1, 2, 3):
            with raises(StatusCode.NOT_FOUND):
                device.unmap(slot)
        with raises(StatusCode.INVALID_ARGUMENT, "out of bounds"):
            device.unmap(9)
        device.unmap(0, 2 * GRANULE)

    def test_a_pending_unmap_is_not_repeated(self, device, raises):
        device.map(device.allocate(2 * GRANULE), 0, 2 * GRANULE)
        device.unmap(0, 2 * GRANULE)
        with raises(StatusCode.FAILED_PRECONDITION, "pending UnMap"):
            device.unmap(0, 2 * GRANULE)
        with raises(StatusCode.NOT_FOUND):
            device.unmap(0)

    def test_the_mapping_stays_until_the_work_before_is_done(self, device):
        alias = device.map(device.allocate(), 0)
        device.stream.submit([alias])
        device.unmap(0)
        assert device.executor.memory.resolve(alias) is not None
        device.synchronize()
        assert device.executor.memory.resolve(alias) is None
        assert device.executor.fault is None
