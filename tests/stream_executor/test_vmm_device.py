"""The rules of one device: fresh memory, reuse, exhaustion, slots; through its allocator where possible."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.deferred_operations import XLA_BATCH, BatchLimits
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, StreamMode
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from jax_cmdbuf.stream_executor.vmm_device import MAX_STALE_MAPPING_WAITS, POLL_MICROSECONDS, VmmDevice
from tests.stream_executor.simulated_device import GRANULE, Device


class TestAllocate:
    def test_nothing_is_the_null_address(self, device):
        assert device.allocate(0) == NULL_ADDRESS == device.allocate_at(0, 0)
        device.free(NULL_ADDRESS)
        assert device.calls() == {"cuMemAddressReserve": 1}

    def test_an_address_has_the_size_asked_for_and_rounded_memory(self, device):
        address = device.allocate(GRANULE + 1)
        assert address.size == GRANULE + 1
        assert device.raw(address).size == 2 * GRANULE
        assert device.allocator.statistics(0).allocated == 2 * GRANULE

    def test_live_buffers_do_not_share_memory(self, device):
        addresses = [device.allocate(1000) for _ in range(10)]
        assert len({device.raw(address).handle for address in addresses}) == 10

    def test_a_pending_free_is_reused_without_any_call(self, device):
        first = device.allocate(1000)
        device.free(first)
        before = device.calls()
        second = device.allocate(2000)
        assert second == DeviceAddress(first.opaque, 2000)
        assert device.calls() == before
        assert device.stream.completed_seqno() == 0

    def test_the_oldest_pending_free_of_the_size_is_taken(self, device):
        small = [device.allocate(size) for size in (4, 1000, GRANULE)]
        large = device.allocate(GRANULE + 1)
        for address in (small[1], large, small[2], small[0]):
            device.free(address)
        assert [device.allocate(8).opaque for _ in range(3)] == [small[i].opaque for i in (1, 2, 0)]
        assert device.allocate(2 * GRANULE).opaque == large.opaque

    def test_an_output_and_a_temp_swap_addresses(self, device):
        temp, output = device.allocate(8), device.allocate(16)
        device.free(output)
        device.free(temp)
        assert [device.allocate(8).opaque, device.allocate(16).opaque] == [output.opaque, temp.opaque]

    def test_an_output_that_is_held_alternates_between_two_addresses(self, device):
        held, seen = device.allocate(8), []
        for _ in range(6):
            output = device.allocate(8)
            device.free(held)
            held = output
            seen.append(output.opaque)
        assert seen[0] != seen[1]
        assert seen == seen[:2] * 3

    @pytest.mark.parametrize(("before", "after"), [(1, 2), (8, 1)])
    def test_memory_of_one_device_programs_and_of_many_is_not_exchanged(self, device, before, after):
        first = device.allocate(device_count=before)
        device.free(first)
        other = device.allocate(device_count=after)
        assert other.opaque != first.opaque
        assert device.allocate(device_count=before).opaque == first.opaque

    def test_a_completed_free_is_not_reused(self, device):
        first = device.allocate()
        device.free(first)
        device.synchronize()
        assert device.allocate().opaque != first.opaque

    def test_a_slot_is_never_reused_for_an_ordinary_allocation(self, device):
        slot = device.allocate_at(0)
        device.free(slot)
        assert device.allocate().opaque != slot.opaque

    @pytest.mark.parametrize("call", ["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"])
    def test_a_call_that_fails_midway_leaves_nothing(self, device, raises, call):
        device.driver.fail(call)
        with raises(StatusCode.INTERNAL, "CUDA_ERROR_UNKNOWN"):
            device.allocate()
        device.allocate()


class TestExhaustion:
    def test_the_budget_limits_rounded_sizes(self):
        device = Device(budget=3 * GRANULE)
        device.allocate(GRANULE + 1)
        device.allocate(1)
        with pytest.raises(StatusError) as caught:
            device.allocate(5)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        for number in (
            f"pa_allocated={3 * GRANULE}B",
            f"allocation_size={GRANULE}B",
            f"pa_budget={3 * GRANULE}B",
        ):
            assert number in str(caught.value)

    def test_the_device_limits_as_well(self):
        executor = SimulatedExecutor(total_bytes=2 * GRANULE)
        allocator = DeviceAddressVmmAllocator([DeviceConfig(executor.create_stream())])
        first = allocator.allocate(0, 2 * GRANULE)
        with pytest.raises(DriverError) as caught:
            allocator.allocate(0, 1)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        allocator.deallocate(0, first)
        allocator.allocate(0, 1)

    def test_frees_that_are_due_are_completed_without_waiting(self):
        device = Device(budget=2 * GRANULE, mode=StreamMode.AUTO)
        device.free(device.allocate(2 * GRANULE))
        waited = device.driver.microseconds
        device.allocate(1)
        assert device.allocator.statistics(0).allocated == GRANULE
        assert device.driver.microseconds - waited < 50 + 80

    def test_then_enough_of_the_oldest_frees_are_waited_for(self):
        device = Device(budget=8 * GRANULE, batch=BatchLimits(1, 1))
        addresses = [device.allocate(2 * GRANULE) for _ in range(4)]
        for address in addresses:
            device.free(address)
        device.allocate(GRANULE)
        # 1.1 times one granule is within the oldest free: the other three still wait for reuse.
        assert device.allocator.statistics(0).pending == 3
        assert [device.allocate(2 * GRANULE).opaque for _ in range(3)] == [a.opaque for a in addresses[1:]]

    def test_a_tenth_more_than_needed_is_waited_for(self):
        device = Device(budget=6 * GRANULE, batch=BatchLimits(1, 1))
        for address in [device.allocate(size * GRANULE) for size in (3, 2, 1)]:
            device.free(address)
        device.allocate(5 * GRANULE)
        assert device.allocator.statistics(0).pending == 0

    def test_unmaps_are_not_waited_for(self):
        device = Device(budget=3 * GRANULE)
        held, freed = device.allocate(), device.allocate(2 * GRANULE)
        device.map(held, 0)
        device.unmap(0)
        device.free(freed)
        device.allocate_at(1)
        assert device.allocator.statistics(0).pending == 1
        before = device.calls()
        device.map(held, 0)
        assert device.calls() == before

    def test_memory_goes_with_its_stale_alias(self):
        device = Device(budget=2 * GRANULE)
        source = device.allocate()
        device.map(source, 0)
        device.unmap(0)
        device.free(source)
        device.allocate(2 * GRANULE)
        assert device.executor.memory.used_bytes == 2 * GRANULE
        assert device.allocator.statistics(0).pending == 0

    def test_what_was_taken_back_and_freed_again_during_the_wait_stays(self):
        device = Device(budget=3 * GRANULE, mode=StreamMode.TOLD, batch=BatchLimits(1, 1))
        first, other = device.allocate(), device.allocate()
        device.free(first)
        device.free(other)

        def interfere(duration):
            # As another thread would, while the lock is given up.
            device.stream.mode = StreamMode.ON_WAIT
            again = device.allocate()
            assert again == first
            device.stream.advance()
            device.stream.submit([again])
            device.free(again)
            del device.stream.wait_microseconds

        device.stream.wait_microseconds = interfere
        with pytest.raises(StatusError):
            device.allocate(3 * GRANULE)
        assert device.executor.memory.resolve(first) is not None
        device.synchronize()
        assert device.executor.fault is None

    def test_when_everything_was_waited_for_it_fails(self):
        device = Device(budget=4 * GRANULE)
        device.free(device.allocate(2 * GRANULE))
        with pytest.raises(StatusError) as caught:
            device.allocate(5 * GRANULE)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert device.allocator.statistics(0).allocated == 0

    @pytest.mark.parametrize(
        "call", ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease", "cuStreamWriteValue64"]
    )
    def test_a_release_that_fails_is_repeated(self, device, call):
        device.free(device.allocate())
        device.driver.fail(call)
        with pytest.raises(DriverError):
            device.synchronize()
        assert device.allocator.statistics(0).pending == 1
        device.synchronize()
        assert device.allocator.statistics(0).allocated == 0

    def test_what_is_half_released_is_not_reused(self, device):
        first = device.allocate()
        device.free(first)
        device.driver.fail("cuMemRelease")
        with pytest.raises(DriverError):
            device.synchronize()
        assert device.raw(first) is None
        second = device.allocate()
        assert second.opaque != first.opaque
        device.stream.submit([second])


class TestAllocateAt:
    def test_it_returns_the_slot(self, device):
        address = device.allocate_at(1)
        assert address == device.reservation.address.slice(GRANULE, GRANULE)
        device.stream.submit([address])

    def test_a_temp_keeps_its_memory_from_run_to_run(self, device):
        device.free(device.allocate_at(0))
        before = device.calls()
        for _ in range(3):
            device.free(device.allocate_at(0))
        assert device.calls() == before

    @pytest.mark.parametrize("call", ["cuMemUnmap", "cuMemRelease"])
    def test_what_is_half_released_is_not_taken_back(self, device, call):
        device.free(device.allocate_at(0))
        device.driver.fail(call)
        with pytest.raises(DriverError):
            device.synchronize()
        device.stream.submit([device.allocate_at(0)])

    def test_a_slot_in_use_is_refused(self, device, raises):
        device.allocate_at(0)
        with raises(StatusCode.ALREADY_EXISTS, "already tracked"):
            device.allocate_at(0)

    def test_a_slot_with_an_active_alias_is_refused(self, device, raises):
        device.map(device.allocate(), 0)
        with raises(StatusCode.ALREADY_EXISTS):
            device.allocate_at(0)

    @pytest.mark.parametrize("stale", [False, True])
    @pytest.mark.parametrize(("slot", "size"), [(0, 1), (1, 1), (0, 3), (1, 2), (0, 4)])
    def test_a_partial_overlap_is_refused(self, device, raises, slot, size, stale):
        taken = device.allocate_at(0, 2 * GRANULE)
        if stale:
            device.free(taken)
        with raises(StatusCode.FAILED_PRECONDITION, "stale allocator" if stale else "active allocator"):
            device.allocate_at(slot, size * GRANULE)
        device.allocate_at(2, 2 * GRANULE)

    def test_a_stale_alias_is_waited_for(self, device):
        device.map(device.allocate(), 0)
        device.unmap(0)
        device.stream.submit([device.reservation.address.slice(0, GRANULE)])
        device.allocate_at(0)
        assert device.allocator.statistics(0).pending == 0

    def test_a_stale_slot_of_another_kind_of_program_is_waited_for(self, device):
        first = device.allocate_at(0, device_count=2)
        memory = device.raw(first)
        device.free(first)
        second = device.allocate_at(0)
        assert second == first
        assert device.raw(second) is not memory

    @pytest.mark.parametrize(("offset", "size"), [(4 * GRANULE, 1), (0, 5 * GRANULE), (-GRANULE, GRANULE)])
    def test_outside_the_reservation_is_refused(self, device, raises, offset, size):
        with raises(StatusCode.INVALID_ARGUMENT, "out of bounds"):
            device.allocator.allocate_at(0, size, device.reservation, offset)

    def test_an_uneven_size_is_the_drivers_to_refuse(self, device, raises):
        with raises(StatusCode.INTERNAL, "CUDA_ERROR_NOT_SUPPORTED"):
            device.allocate_at(0, 1000)

    @pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
    def test_a_call_that_fails_midway_leaves_nothing(self, device, raises, call):
        device.driver.fail(call)
        with raises(StatusCode.INTERNAL):
            device.allocate_at(0)
        device.allocate_at(0)

    def test_the_budget_holds_and_is_reclaimed(self):
        device = Device(budget=2 * GRANULE)
        device.free(device.allocate())
        device.allocate_at(0, 2 * GRANULE)
        with pytest.raises(StatusError) as caught:
            device.allocate_at(2)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
def bare():
    stream = SimulatedExecutor().create_stream(StreamMode.ON_WAIT)
    device = VmmDevice(stream, None, XLA_BATCH)
    with device.lock:
        yield device
        device.close()
    assert stream.executor.memory.is_empty


def test_the_numbers_are_xlas():
    assert POLL_MICROSECONDS == 50
    assert MAX_STALE_MAPPING_WAITS == 2


def test_the_lock_is_given_up_while_waiting_and_taken_again(bare):
    locked = []
    wait = bare.stream.wait_microseconds

    def note(duration):
        locked.append(bare.lock.locked())
        wait(duration)

    bare.stream.wait_microseconds = note
    bare.deallocate(bare.allocate(1, False))
    bare.synchronize()
    assert locked == [False]
    assert bare.lock.locked()


def test_the_lock_is_taken_again_when_the_wait_fails(bare):
    def fail(duration):
        raise KeyboardInterrupt

    bare.deallocate(bare.allocate(1, False))
    bare.stream.wait_microseconds = fail
    with pytest.raises(KeyboardInterrupt):
        bare.synchronize()
    del bare.stream.wait_microseconds
    assert bare.lock.locked()


def test_waiting_polls_in_steps(bare):
    before = bare.stream.executor.driver.microseconds
    for _ in range(3):
        bare.stream.enqueue_seqno(0)
    bare.deallocate(bare.allocate(1, False))
    bare.synchronize()
    assert bare.stream.executor.driver.microseconds - before >= 4 * POLL_MICROSECONDS
