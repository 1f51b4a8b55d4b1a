from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor
from jax_cmdbuf.stream_executor.vmm_records import (
    AllocationKind,
    AllocationRecord,
    ReservationAlias,
    ReservationSlots,
)

GRANULE = 2 << 20


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
