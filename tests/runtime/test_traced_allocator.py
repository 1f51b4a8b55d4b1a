"""The allocator that follows a recording: recorded addresses, the allocator's own rules for the rest."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.runtime.traced_allocator import TracedAllocator
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceConfig

MIB = 1 << 20


def at(number, size=1000):
    return DeviceAddress(0x3_0000_0000 + number * 8 * MIB, size)


@pytest.fixture
def traced():
    executor = SimulatedExecutor()
    made = TracedAllocator(DeviceConfig(executor.create_stream()), executor.memory.choose_addresses)
    made.device = executor
    yield made
    made.close()
    assert executor.memory.is_empty


def test_allocations_take_the_recorded_addresses_of_their_size(traced):
    traced.follow([at(1), at(2, 5 * MIB), at(3)], None)
    assert traced.remaining(1000) == 2
    assert traced.allocate(0, 5 * MIB) == at(2, 5 * MIB)
    assert [traced.allocate(0, 1000) for _ in range(2)] == [at(1), at(3)]
    assert traced.remaining(1000) == 0
    assert traced.allocate(0, 1000) not in (at(1), at(3))


def test_a_free_buffer_is_reused_whichever_is_the_oldest(traced):
    traced.follow([at(1), at(2), at(2)], None)
    first, second = traced.allocate(0, 1000), traced.allocate(0, 1000)
    traced.deallocate(0, first)
    traced.deallocate(0, second)
    created = traced.device.driver.calls["cuMemCreate"]
    assert traced.allocate(0, 1000) == second
    assert traced.device.driver.calls["cuMemCreate"] == created


def test_an_address_handed_out_again_was_given_back(traced):
    traced.follow([at(1), at(1)], None)
    assert traced.allocate(0, 1000) == traced.allocate(0, 1000) == at(1)
    assert traced.statistics(0).active == 1


def test_another_size_at_a_known_address_is_fresh_memory(traced):
    traced.follow([at(1), at(1, 3 * MIB)], None)
    traced.deallocate(0, traced.allocate(0, 1000))
    assert traced.allocate(0, 3 * MIB) == at(1, 3 * MIB)
    assert traced.device.memory.resolve(at(1, 3 * MIB)) is not None


def test_memory_whose_release_is_pending_makes_room(traced):
    traced.follow([at(1, 6 * MIB), DeviceAddress(at(1).opaque + 4 * MIB, 1000)], None)
    traced.deallocate(0, traced.allocate(0, 6 * MIB))
    assert traced.allocate(0, 1000).opaque == at(1).opaque + 4 * MIB


def test_a_reservation_begins_where_it_was_recorded(traced):
    traced.follow([at(1)], at(1).opaque)
    traced.deallocate(0, traced.allocate(0, 1000))
    reservation = traced.create_reservation(0, 2 * MIB)
    assert reservation.address.opaque == at(1).opaque
    reservation.close()
    other = traced.create_reservation(0, 2 * MIB)
    assert other.address.opaque != at(1).opaque
    other.close()


def test_buffers_of_others_are_adopted_and_given_back(traced):
    assert traced.adopt(at(1)) == at(1)
    assert traced.is_active(at(1))
    assert not traced.is_active(at(1, 999))
    traced.give_back([at(1).opaque, at(2).opaque])
    assert not traced.is_active(at(1))
    traced.give_back([at(1).opaque])


def test_an_address_that_can_never_be_had_is_an_error(traced):
    traced.follow([DeviceAddress(at(1).opaque + 1, 1000)], None)
    with pytest.raises(StatusError, match="not aligned"):
        traced.allocate(0, 1000)
    traced.device.memory._chosen.clear()
