from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.adopting_allocator import AdoptingVmmAllocator
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceConfig
from tests.stream_executor.simulated_device import GRANULE


@pytest.fixture
def adopting(device):
    """A program's allocator; the buffers are handed out by ``device``'s, which stands for XLA's."""
    allocator = AdoptingVmmAllocator([DeviceConfig(device.stream)])
    yield allocator
    allocator.close()


@pytest.fixture
def remap(device, adopting):
    """Maps a buffer to the first slot and checks that it leads there."""

    def remap(source, slot=0):
        alias = adopting.map(0, source, device.reservation, slot * GRANULE, GRANULE)
        resolve = device.executor.memory.resolve
        assert resolve(alias) == resolve(source)
        adopting.unmap(0, device.reservation, slot * GRANULE, GRANULE)
        return alias

    return remap


def release(device, address):
    """As XLA's allocator does under memory pressure: the address is gone, and so is its memory."""
    device.free(address)
    device.allocator.synchronize_pending_operations(0)


def test_a_whole_piece_of_another_allocator_is_exact_and_nothing_else_is(device, adopting):
    buffer, large = device.allocate(1000), device.allocate(3 * GRANULE)
    assert adopting.is_exact_address(0, buffer)
    assert adopting.is_exact_address(0, large)
    part = large.slice(GRANULE, GRANULE)
    assert not adopting.is_exact_address(0, part)
    assert not adopting.is_exact_address(0, large.slice(0, GRANULE))
    assert not adopting.is_exact_address(0, device.allocate(0))
    assert not adopting.is_exact_address(0, device.reservation.address)
    with pytest.raises(StatusError) as caught:
        adopting.map(0, part, device.reservation, 0, GRANULE)
    assert caught.value.code is StatusCode.NOT_FOUND


def test_a_buffer_that_stays_is_mapped_once(device, adopting, remap):
    buffer = device.allocate(1000)
    remap(buffer)
    calls = device.driver.calls["cuMemMap"]
    for _ in range(5):
        remap(buffer)
    assert device.driver.calls["cuMemMap"] == calls
    # It fits the same slot under another size, as XLA hands it out again.
    device.free(buffer)
    again = device.allocate(2000)
    assert again.opaque == buffer.opaque
    remap(again)


def test_other_memory_at_a_known_address_is_noticed(device, adopting, remap):
    buffer = device.allocate(1000)
    first = remap(buffer)
    release(device, buffer)
    device.executor.memory.choose_addresses(buffer.opaque)
    again = device.allocate(1000)
    assert again == buffer
    assert remap(again) == first
    release(device, again)
    assert not adopting.is_exact_address(0, again)


def test_what_is_mapped_nowhere_is_let_go(device, adopting, remap):
    used = device.executor.memory.used_bytes
    for _ in range(10):
        buffer = device.allocate()
        adopting.is_exact_address(0, buffer)
        remap(buffer)
        release(device, buffer)
    # The slot keeps the last one until something else is mapped there.
    assert device.executor.memory.used_bytes <= used + 2 * GRANULE
    assert adopting.statistics(0).allocated <= 2 * GRANULE
    adopting.close()
    assert device.executor.memory.used_bytes == used


def test_one_buffer_has_one_active_alias(device, adopting):
    buffer = device.allocate()
    adopting.map(0, buffer, device.reservation, 0, GRANULE)
    with pytest.raises(StatusError) as caught:
        adopting.map(0, buffer, device.reservation, GRANULE, GRANULE)
    assert caught.value.code is StatusCode.ALREADY_EXISTS
    adopting.unmap(0, device.reservation, 0, GRANULE)
    adopting.map(0, buffer, device.reservation, GRANULE, GRANULE)
    adopting.unmap(0, device.reservation, GRANULE, GRANULE)


def test_its_own_memory_is_its_own(device, adopting):
    own = adopting.allocate(0, 1000)
    assert adopting.is_exact_address(0, own)
    adopting.map(0, own, device.reservation, 0, GRANULE)
    adopting.unmap(0, device.reservation, 0, GRANULE)
    adopting.deallocate(0, own)
    assert device.driver.calls["cuMemRetainAllocationHandle"] == 0


@pytest.mark.parametrize("call", ["cuMemGetAddressRange", "cuMemRetainAllocationHandle", "cuMemMap"])
def test_a_refusal_of_the_driver_leaves_nothing_behind(device, adopting, call):
    buffer = device.allocate()
    device.driver.fail(call)
    with pytest.raises(StatusError):
        adopting.map(0, buffer, device.reservation, 0, GRANULE)
    adopting.map(0, buffer, device.reservation, 0, GRANULE)
    adopting.unmap(0, device.reservation, 0, GRANULE)
