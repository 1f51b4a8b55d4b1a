from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError
from jax_cmdbuf.stream_executor.simulated_memory import (
    Cost,
    MappedRange,
    SimulatedDriver,
    SimulatedVirtualMemory,
)

GRANULE = 2 << 20
CALLS = ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease")


@pytest.fixture
def driver():
    return SimulatedDriver()


@pytest.fixture
def memory(driver):
    return SimulatedVirtualMemory(driver, total_bytes=64 * GRANULE)


def go_through_a_life(memory):
    address = memory.reserve_address(GRANULE)
    handle = memory.create_memory(GRANULE)
    memory.map(address, GRANULE, handle)
    memory.set_access(address, GRANULE)
    memory.unmap(address, GRANULE)
    memory.release_memory(handle)
    memory.free_address(address, GRANULE)


class TestDriver:
    def test_every_call_is_counted(self, driver, memory):
        go_through_a_life(memory)
        assert driver.calls == dict.fromkeys((*CALLS, "cuMemAddressFree"), 1)

    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_the_nth_call_fails_once(self, driver, memory, call, nth):
        driver.fail(call, nth, "CUDA_ERROR_LAUNCH_FAILED")
        for _ in range(nth - 1):
            go_through_a_life(memory)
        with pytest.raises(DriverError) as caught:
            go_through_a_life(memory)
        assert (caught.value.call, caught.value.error) == (call, "CUDA_ERROR_LAUNCH_FAILED")
        go_through_a_life(memory)

    def test_refused_calls_count_and_cost(self, driver, memory):
        with pytest.raises(DriverError):
            memory.map(0, GRANULE, 0)
        assert driver.calls["cuMemMap"] == 1
        assert driver.microseconds > 0

    def test_costs_add_up_per_call_per_mapping_and_per_gibibyte(self):
        costs = {"cuMemSetAccess": Cost(10.0, 512.0), "cuMemUnmap": Cost(7.0)}
        driver = SimulatedDriver(costs)
        memory = SimulatedVirtualMemory(driver, total_bytes=64 * GRANULE)
        address = memory.reserve_address(4 * GRANULE)
        for index in range(4):
            memory.map(address + index * GRANULE, GRANULE, memory.create_memory(GRANULE))
        memory.set_access(address, 4 * GRANULE)
        assert driver.microseconds == 4 * 10.0 + 512.0 * 4 * GRANULE / (1 << 30)
        memory.unmap(address, 4 * GRANULE)
        assert driver.microseconds == 4 * 10.0 + 4.0 + 4 * 7.0


class TestAddresses:
    def test_the_same_calls_give_the_same_addresses(self):
        runs = []
        for _ in range(2):
            memory = SimulatedVirtualMemory(SimulatedDriver(), total_bytes=64 * GRANULE)
            runs.append([memory.reserve_address(size * GRANULE) for size in (1, 3, 2)])
        assert runs[0] == runs[1]

    def test_a_fresh_address_was_never_used(self, memory):
        first = memory.reserve_address(GRANULE)
        memory.free_address(first, GRANULE)
        assert memory.reserve_address(GRANULE) != first

    def test_addresses_can_be_chosen(self, memory):
        memory.choose_addresses(8 * GRANULE, 4 * GRANULE)
        assert [memory.reserve_address(GRANULE) for _ in range(2)] == [8 * GRANULE, 4 * GRANULE]

    def test_a_chosen_address_must_be_free_and_waits_until_it_is(self, memory):
        memory.choose_addresses(8 * GRANULE, 9 * GRANULE)
        memory.reserve_address(2 * GRANULE)
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            memory.reserve_address(GRANULE)
        memory.free_address(8 * GRANULE, 2 * GRANULE)
        assert memory.reserve_address(GRANULE) == 9 * GRANULE

    def test_the_device_goes_around_chosen_addresses(self, memory):
        first = memory.reserve_address(GRANULE)
        memory.choose_addresses(first + GRANULE)
        memory.reserve_address(4 * GRANULE)
        assert memory.reserve_address(GRANULE) == first + 5 * GRANULE

    def test_neighbouring_reservations_count_as_one(self, memory):
        memory.choose_addresses(8 * GRANULE, 9 * GRANULE)
        for _ in range(2):
            memory.reserve_address(GRANULE)
        memory.map(8 * GRANULE, 2 * GRANULE, memory.create_memory(2 * GRANULE))
        assert memory.mapping_count == 1
        with pytest.raises(DriverError):
            memory.free_address(9 * GRANULE, GRANULE)


class TestPhysicalMemory:
    def test_there_is_no_more_than_the_device_has(self, memory):
        memory.create_memory(60 * GRANULE)
        with pytest.raises(DriverError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            memory.create_memory(5 * GRANULE)
        memory.create_memory(4 * GRANULE)

    def test_memory_lives_until_its_last_mapping_goes(self, memory):
        address, handle = memory.reserve_address(2 * GRANULE), memory.create_memory(GRANULE)
        memory.map(address, GRANULE, handle)
        memory.map(address + GRANULE, GRANULE, handle)
        memory.release_memory(handle)
        for index in range(2):
            assert memory.used_bytes == GRANULE
            memory.unmap(address + index * GRANULE, GRANULE)
        assert memory.used_bytes == 0

    @pytest.mark.parametrize("use", ["map", "release"])
    def test_a_handle_that_was_given_up_is_refused(self, memory, use):
        address, handle = memory.reserve_address(GRANULE), memory.create_memory(GRANULE)
        memory.release_memory(handle)
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
            memory.map(address, GRANULE, handle) if use == "map" else memory.release_memory(handle)

    def test_needless_unmaps_are_noticed(self, memory):
        address = memory.reserve_address(GRANULE)
        memory.unmap(address, GRANULE)
        assert memory.needless_unmaps == 1


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 3)), max_size=12),
    st.integers(0, 9),
    st.integers(1, 4),
)
def test_resolve_agrees_with_a_table_of_granules(mappings, start, length):
    memory = SimulatedVirtualMemory(SimulatedDriver(), total_bytes=1 << 40)
    memory.choose_addresses(16 * GRANULE)
    base = memory.reserve_address(10 * GRANULE)
    table: dict[int, MappedRange] = {}
    for place, size in mappings:
        granules = range(place, place + size)
        if any(granule in table for granule in granules):
            continue
        handle = memory.create_memory(size * GRANULE)
        memory.map(base + place * GRANULE, size * GRANULE, handle)
        memory.set_access(base + place * GRANULE, size * GRANULE)
        for index, granule in enumerate(granules):
            table[granule] = MappedRange(handle, index * GRANULE)
    wanted = [
        table.get(start + index) == MappedRange(table[start].handle, table[start].offset + index * GRANULE)
        if start in table
        else False
        for index in range(length)
    ]
    found = memory.resolve(DeviceAddress(base + start * GRANULE, length * GRANULE))
    assert found == (table[start] if all(wanted) else None)
