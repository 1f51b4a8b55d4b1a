from __future__ import annotations

import threading

import pytest
from hypothesis import settings

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.events import Allocate, Deallocate, EventLog
from jax_cmdbuf.stream_executor.deferred_operations import XLA_BATCH, BatchLimits
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, StreamMode
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from tests.stream_executor.allocator_machine import AllocatorMachine

GRANULE = 2 << 20


class Device:
    """A simulated device with an allocator, and what must hold at its end."""

    def __init__(self, budget=None, mode=StreamMode.ON_WAIT, batch=XLA_BATCH):
        self.executor = SimulatedExecutor()
        self.driver = self.executor.driver
        self.stream = self.executor.create_stream(mode)
        self.log = EventLog()
        self.allocator = DeviceAddressVmmAllocator([DeviceConfig(self.stream, budget, batch)], self.log)
        self.reservation = self.allocator.create_reservation(0, 4 * GRANULE)

    def allocate(self, size=GRANULE, **kinds):
        return self.allocator.allocate(0, size, **kinds)

    def allocate_at(self, slot, size=GRANULE, **kinds):
        return self.allocator.allocate_at(0, size, self.reservation, slot * GRANULE, **kinds)

    def free(self, address):
        self.allocator.deallocate(0, address)

    def map(self, source, slot, size=GRANULE):
        return self.allocator.map(0, source, self.reservation, slot * GRANULE, size)

    def unmap(self, slot, size=GRANULE):
        self.allocator.unmap(0, self.reservation, slot * GRANULE, size)

    def raw(self, address):
        return self.allocator.get_raw_allocation(0, address)

    def synchronize(self):
        self.allocator.synchronize_pending_operations(0)

    def calls(self):
        """Driver calls so far, timeline writes and waits left out."""
        return {name: count for name, count in self.driver.calls.items() if name.startswith("cuMem")}

    def state(self):
        memory = self.executor.memory
        held = memory.used_bytes, memory.mapping_count, memory.reservation_count
        return held, self.allocator.statistics(0)


@pytest.fixture
def device():
    device = Device()
    yield device
    device.allocator.close()
    device.reservation.close()
    assert device.executor.memory.is_empty
    assert device.executor.memory.needless_unmaps == 0
    assert device.executor.fault is None


@pytest.fixture
def raises(device):
    """``with raises(code, text)``: the call fails so and leaves everything as it was."""

    class Raises:
        def __init__(self, code, text=None):
            self.code, self.caught = code, pytest.raises(StatusError, match=text)

        def __enter__(self):
            self.before = device.state()
            return self.caught.__enter__()

        def __exit__(self, *error):
            handled = self.caught.__exit__(*error)
            assert self.caught.excinfo.value.code is self.code
            assert device.state() == self.before
            return handled

    return Raises


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


class TestDeallocate:
    @pytest.mark.parametrize("size", [GRANULE - 1, GRANULE + 1, 0])
    def test_pointer_and_size_must_match(self, device, raises, size):
        address = device.allocate()
        with raises(StatusCode.NOT_FOUND, "not an active allocator address"):
            device.free(DeviceAddress(address.opaque, size))

    def test_unknown_inner_and_freed_addresses_are_refused(self, device, raises):
        address = device.allocate()
        device.free(address)
        for wrong in (address, DeviceAddress(address.opaque + 8, 8), DeviceAddress(64, 64)):
            with raises(StatusCode.NOT_FOUND):
                device.free(wrong)

    def test_an_alias_is_not_an_allocator_address(self, device, raises):
        alias = device.map(device.allocate(), 0)
        with raises(StatusCode.NOT_FOUND):
            device.free(alias)

    def test_an_active_alias_must_go_first(self, device, raises):
        address = device.allocate()
        device.map(address, 0)
        with raises(StatusCode.FAILED_PRECONDITION, "UnMap"):
            device.free(address)
        device.unmap(0)
        device.free(address)

    def test_memory_stays_mapped_until_the_work_before_is_done(self, device):
        address = device.allocate()
        device.stream.submit([address])
        device.free(address)
        assert device.executor.memory.resolve(address) is not None
        device.synchronize()
        assert device.executor.memory.resolve(address) is None
        assert device.executor.fault is None

    def test_a_stale_alias_goes_with_its_memory(self, device):
        address = device.allocate()
        device.map(address, 0)
        device.unmap(0)
        device.free(address)
        device.synchronize()
        assert device.executor.memory.mapping_count == 0

    def test_a_failed_timeline_write_changes_nothing(self, raises, device):
        device.allocator.close()
        device.allocator = DeviceAddressVmmAllocator([DeviceConfig(device.stream, batch=BatchLimits(1, 1))])
        first, second = device.allocate(), device.allocate()
        device.free(first)
        device.driver.fail("cuStreamWriteValue64")
        with raises(StatusCode.INTERNAL):
            device.free(second)
        device.free(second)


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


class TestLookUp:
    def test_exact_addresses(self, device):
        address = device.allocate(1000)
        assert device.allocator.is_exact_address(0, address)
        for wrong in (DeviceAddress(address.opaque, 999), DeviceAddress(address.opaque + 8, 8), NULL_ADDRESS):
            assert not device.allocator.is_exact_address(0, wrong)
            assert device.raw(wrong) is None

    def test_foreign_memory_is_not_known(self, device):
        foreign = device.executor.allocate_foreign(1000)
        assert not device.allocator.is_exact_address(0, foreign)
        device.executor.free_foreign(foreign)

    def test_a_freed_address_is_known_until_its_release(self, device):
        address = device.allocate(1000)
        device.free(address)
        assert device.allocator.is_exact_address(0, address)
        device.synchronize()
        assert not device.allocator.is_exact_address(0, address)

    def test_an_alias_leads_to_memory_only_while_active_and_is_no_allocator_address(self, device):
        alias = device.map(device.allocate(), 0)
        assert device.raw(alias) is not None
        assert device.raw(alias.slice(0, 8)) is None
        assert not device.allocator.is_exact_address(0, alias)
        device.unmap(0)
        assert device.raw(alias) is None


class TestAllocator:
    def test_an_unknown_device(self, device):
        calls = [
            lambda a: a.allocate(7, 1),
            lambda a: a.allocate_at(7, 0, device.reservation, 0),
            lambda a: a.deallocate(7, NULL_ADDRESS),
            lambda a: a.map(7, NULL_ADDRESS, device.reservation, 0, 0),
            lambda a: a.unmap(7, device.reservation, 0, 0),
            lambda a: a.get_raw_allocation(7, NULL_ADDRESS),
            lambda a: a.is_exact_address(7, NULL_ADDRESS),
            lambda a: a.synchronize_pending_operations(7),
            lambda a: a.create_reservation(7, 1),
            lambda a: a.granularity(7),
            lambda a: a.stream(7),
            lambda a: a.executor(7),
            lambda a: a.statistics(7),
        ]
        for call in calls:
            with pytest.raises(StatusError, match="No device with ordinal 7") as caught:
                call(device.allocator)
            assert caught.value.code is StatusCode.NOT_FOUND

    def test_one_device_once(self, device):
        with pytest.raises(StatusError) as caught:
            DeviceAddressVmmAllocator([DeviceConfig(device.stream), DeviceConfig(device.stream)])
        assert caught.value.code is StatusCode.INVALID_ARGUMENT

    def test_devices_are_independent(self):
        streams = [SimulatedExecutor(ordinal).create_stream() for ordinal in (0, 3)]
        with DeviceAddressVmmAllocator(
            [DeviceConfig(streams[0], GRANULE), DeviceConfig(streams[1])]
        ) as allocator:
            assert allocator.device_ordinals == (0, 3)
            assert allocator.stream(3) is streams[1]
            assert allocator.executor(3) is streams[1].executor
            allocator.allocate(0, 1)
            with pytest.raises(StatusError):
                allocator.allocate(0, 1)
            addresses = [allocator.allocate(3, 1) for _ in range(3)]
            assert allocator.statistics(3).active == 3
            with pytest.raises(StatusError):
                allocator.deallocate(0, addresses[2])
        assert all(stream.executor.memory.is_empty for stream in streams)

    def test_closing_releases_what_was_never_freed(self, device):
        addresses = [device.allocate() for _ in range(3)]
        device.map(addresses[0], 0)
        device.allocate_at(1)
        device.free(addresses[1])
        device.allocator.close()
        device.allocator.close()
        assert device.executor.memory.mapping_count == 0
        with pytest.raises(StatusError):
            device.allocate()

    def test_closing_waits_for_work_that_uses_what_was_never_freed(self, device):
        device.stream.submit([device.allocate(), device.map(device.allocate_at(0), 1)])
        device.allocator.close()
        device.stream.synchronize()

    def test_closing_can_be_repeated_after_a_failure(self, device):
        device.map(device.allocate(), 0)
        device.driver.fail("cuMemUnmap", 2)
        with pytest.raises(DriverError):
            device.allocator.close()
        device.allocator.close()
        assert device.executor.memory.mapping_count == 0

    def test_events_are_those_xla_logs(self, device):
        address = device.allocate(1000)
        device.allocate(0)
        slot = device.allocate_at(0)
        device.map(address, 1)
        device.unmap(1)
        device.free(address)
        device.free(slot)
        assert device.log.drain() == (
            Allocate(address.opaque, 1000),
            Deallocate(address.opaque, 1000),
            Deallocate(slot.opaque, GRANULE),
        )

    @pytest.mark.parametrize(("limits", "writes"), [((1, 1), 7), ((3, 1 << 40), 2), ((64, 2 * GRANULE), 3)])
    def test_deferred_operations_share_timeline_writes(self, limits, writes):
        device = Device(batch=BatchLimits(*limits))
        for address in [device.allocate() for _ in range(8)]:
            device.free(address)
        assert device.driver.calls["cuStreamWriteValue64"] == writes


class TestThreads:
    def test_many_threads_and_a_stream_that_is_told(self):
        device = Device(budget=24 * GRANULE, mode=StreamMode.TOLD, batch=BatchLimits(4, 8 * GRANULE))
        failures: list[BaseException] = []
        done = threading.Event()

        def work(slot):
            try:
                for turn in range(60):
                    buffers = [device.allocate((1 + turn % 3) * 1000) for _ in range(2)]
                    device.map(buffers[turn % 2], slot)
                    device.unmap(slot)
                    large = device.allocate((1 + (turn + slot) % 2) * GRANULE)
                    for buffer in (*buffers, large):
                        device.free(buffer)
            except BaseException as error:
                failures.append(error)

        def drive():
            while not done.is_set():
                device.stream.advance(2)
            device.stream.mode = StreamMode.ON_WAIT

        threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
        driver = threading.Thread(target=drive)
        for thread in (*threads, driver):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        driver.join()
        assert not failures
        device.allocator.close()
        device.reservation.close()
        assert device.executor.memory.is_empty
        assert device.executor.memory.needless_unmaps == 0


TestAllocatorMachine = AllocatorMachine.TestCase
TestAllocatorMachine.settings = settings(stateful_step_count=40)
