from __future__ import annotations

import threading

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, SimulatedStream, StreamMode
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from tests.stream_executor.conformance import DeviceConformance

GRANULE = 2 << 20


class TestSimulatedDevice(DeviceConformance):
    @pytest.fixture
    def executor(self) -> SimulatedExecutor:
        return SimulatedExecutor()

    @pytest.fixture
    def memory(self, executor):
        yield executor.memory
        assert executor.memory.is_empty
        assert executor.memory.used_bytes == 0

    @pytest.fixture(params=[StreamMode.AUTO, StreamMode.ON_WAIT])
    def stream(self, executor, memory, request) -> SimulatedStream:
        return executor.create_stream(request.param)

    @pytest.fixture
    def kernel(self, executor) -> se.Kernel:
        return executor.load_kernel(b"", "kernel")


@pytest.fixture
def executor() -> SimulatedExecutor:
    return SimulatedExecutor()


@pytest.fixture
def mapped(executor):
    """A mapped granule: (address, allocation, mapping)."""
    reservation = executor.create_reservation(4 * GRANULE)
    allocation = executor.create_allocation(GRANULE)
    mapping = reservation.map_to(0, GRANULE, allocation)
    return mapping.address, allocation, mapping


def illegal_address():
    return pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS")


class TestSubmit:
    def test_memory_that_is_mapped_with_access_may_be_used(self, executor, mapped):
        stream = executor.create_stream()
        stream.submit([mapped[0], mapped[0].slice(100, 200), NULL_ADDRESS, DeviceAddress(1, 0)])
        assert executor.fault is None

    @pytest.mark.parametrize("offset", [GRANULE, GRANULE - 1, -1, 1 << 40])
    def test_a_byte_outside_is_a_fault_that_stays(self, executor, mapped, offset):
        stream = executor.create_stream()
        with illegal_address():
            stream.submit([DeviceAddress(mapped[0].opaque + offset, 2)])
        for call in (lambda: stream.submit([mapped[0]]), lambda: stream.enqueue_seqno(1), stream.synchronize):
            with illegal_address():
                call()

    @pytest.mark.parametrize("mode", [StreamMode.ON_WAIT, StreamMode.TOLD])
    def test_nobody_waits_for_a_device_that_has_faulted(self, executor, mode):
        stream = executor.create_stream(mode)
        allocator = DeviceAddressVmmAllocator([DeviceConfig(stream)])
        allocator.deallocate(0, allocator.allocate(0, 1))
        with illegal_address():
            stream.submit([DeviceAddress(8, 8)])
        with illegal_address():
            allocator.synchronize_pending_operations(0)

    def test_memory_can_still_be_released_after_a_fault(self, executor, mapped):
        with illegal_address():
            executor.create_stream().submit([DeviceAddress(8, 8)])
        _, allocation, mapping = mapped
        for handle in (mapping, mapping.reservation, allocation):
            handle.close()
        assert executor.memory.is_empty

    def test_a_mapping_without_access_is_a_fault(self, executor):
        reservation, allocation = executor.create_reservation(GRANULE), executor.create_allocation(GRANULE)
        executor.memory.map(reservation.address.opaque, GRANULE, allocation.handle)
        with illegal_address():
            executor.create_stream().submit([reservation.address])

    def test_a_range_over_two_mappings_must_lead_to_one_memory(self, executor):
        reservation = executor.create_reservation(2 * GRANULE)
        for index in range(2):
            reservation.map_to(index * GRANULE, GRANULE, executor.create_allocation(GRANULE))
        assert executor.memory.resolve(reservation.address) is None

    @pytest.mark.parametrize("mode", [StreamMode.ON_WAIT, StreamMode.TOLD])
    def test_unmapping_under_unfinished_work_is_a_fault(self, executor, mapped, mode):
        address, _, mapping = mapped
        stream = executor.create_stream(mode)
        stream.submit([address])
        mapping.close()
        with illegal_address():
            stream.advance()

    def test_exchanging_memory_under_unfinished_work_is_a_fault(self, executor, mapped):
        address, _, mapping = mapped
        stream = executor.create_stream(StreamMode.ON_WAIT)
        stream.submit([address])
        mapping.close()
        mapping.reservation.map_to(0, GRANULE, executor.create_allocation(GRANULE))
        with illegal_address():
            stream.synchronize()

    def test_finished_work_does_not_hold_its_memory(self, executor, mapped):
        stream = executor.create_stream(StreamMode.ON_WAIT)
        stream.submit([mapped[0]])
        stream.synchronize()
        mapped[2].close()
        assert executor.fault is None


class TestAliases:
    def test_an_alias_reaches_its_owner(self, executor, mapped):
        address, allocation, mapping = mapped
        alias = mapping.reservation.map_to(2 * GRANULE, GRANULE, allocation).address
        stream = executor.create_stream()
        stream.check_aliases([(alias, address), (alias, address.slice(0, 1000)), (address, address)])
        assert executor.fault is None

    def test_an_alias_of_other_memory_is_a_fault(self, executor, mapped):
        address, _, mapping = mapped
        other = mapping.reservation.map_to(GRANULE, GRANULE, executor.create_allocation(GRANULE)).address
        with illegal_address():
            executor.create_stream().check_aliases([(other, address)])

    def test_a_stale_alias_is_a_fault(self, executor, mapped):
        address, allocation, mapping = mapped
        alias = mapping.reservation.map_to(GRANULE, GRANULE, allocation)
        alias.close()
        with illegal_address():
            executor.create_stream().check_aliases([(alias.address, address)])

    def test_the_offset_counts(self, executor):
        reservation, allocation = (
            executor.create_reservation(4 * GRANULE),
            executor.create_allocation(GRANULE),
        )
        first = reservation.map_to(0, GRANULE, allocation).address
        second = reservation.map_to(GRANULE, GRANULE, allocation).address
        stream = executor.create_stream()
        stream.check_aliases([(first.slice(100, 10), second.slice(100, 10))])
        with illegal_address():
            stream.check_aliases([(first.slice(100, 10), second.slice(200, 10))])


class TestStream:
    def test_auto_works_at_once(self, executor):
        stream = executor.create_stream(StreamMode.AUTO)
        stream.enqueue_seqno(3)
        assert stream.completed_seqno() == 3

    def test_on_wait_moves_one_entry_per_wait(self, executor, mapped):
        stream = executor.create_stream(StreamMode.ON_WAIT)
        stream.submit([mapped[0]])
        stream.enqueue_seqno(1)
        seen = []
        for _ in range(3):
            seen.append(stream.completed_seqno())
            stream.wait_microseconds(50)
        assert seen == [0, 0, 1]

    def test_told_waits_for_another_thread(self, executor):
        stream = executor.create_stream(StreamMode.TOLD)
        stream.enqueue_seqno(1)
        stream.wait_microseconds(1)
        assert stream.completed_seqno() == 0
        thread = threading.Thread(target=stream.advance)
        thread.start()
        while stream.completed_seqno() < 1:
            stream.wait_microseconds(50)
        thread.join()
        assert stream.pending_count == 0

    def test_advancing_an_idle_stream_does_nothing(self, executor):
        stream = executor.create_stream(StreamMode.TOLD)
        stream.advance(5)
        assert stream.completed_seqno() == 0

    def test_waiting_costs_simulated_time_only(self, executor):
        executor.create_stream(StreamMode.ON_WAIT).wait_microseconds(1e9)
        assert executor.driver.microseconds == 1e9


class TestForeign:
    def test_foreign_memory_can_be_used_and_given_back(self, executor):
        address = executor.allocate_foreign(1000)
        assert address.size == 1000
        executor.create_stream().submit([address])
        executor.free_foreign(address)
        assert executor.memory.is_empty

    def test_only_foreign_memory_can_be_given_back(self, executor):
        with pytest.raises(StatusError) as caught:
            executor.free_foreign(DeviceAddress(GRANULE, 8))
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
