from __future__ import annotations

import threading

import pytest
from hypothesis import settings

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.events import Allocate, Deallocate
from jax_cmdbuf.stream_executor.deferred_operations import BatchLimits
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, StreamMode
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from tests.stream_executor.allocator_machine import AllocatorMachine
from tests.stream_executor.simulated_device import GRANULE, Device


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
