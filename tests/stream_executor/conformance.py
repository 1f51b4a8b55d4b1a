"""What every device must do, simulated or real: subclass ``DeviceConformance`` and provide its fixtures.

``VERDICTS`` is what the driver of an H200 (580.159) said to each misuse, in units of the granularity.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.deferred_operations import BatchLimits
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS
from jax_cmdbuf.stream_executor.memory import DriverError, VirtualMemory
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig

INVALID = "CUDA_ERROR_INVALID_VALUE"
NOT_SUPPORTED = "CUDA_ERROR_NOT_SUPPORTED"
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
RANGE = 8  # granules in the reserved range

# A verb and its numbers. Sizes and places are in granules of the range; memory "two" has two granules.
Step = tuple[str, *tuple[float | str, ...]]

VERDICTS: dict[str, tuple[list[Step], str | None]] = {
    "create nothing": ([("create", 0)], INVALID),
    "create half a granule": ([("create", 0.5)], INVALID),
    "create more than there is": ([("create", 1 << 20)], OUT_OF_MEMORY),
    "reserve nothing": ([("reserve", 0)], INVALID),
    "reserve half a granule": ([("reserve", 0.5)], INVALID),
    "map": ([("map", 0, 2, "two")], None),
    "map nothing": ([("map", 0, 0, "two")], INVALID),
    "map half a granule": ([("map", 0, 0.5, "two")], NOT_SUPPORTED),
    "map to half a granule": ([("map", 0.5, 1, "one")], INVALID),
    "map more than the memory": ([("map", 0, 3, "two")], NOT_SUPPORTED),
    "map a part of the memory": ([("map", 0, 1, "two")], NOT_SUPPORTED),
    "map the memory twice": ([("map", 0, 1, "one"), ("map", 4, 1, "one")], None),
    "map over a mapping": ([("map", 0, 2, "two"), ("map", 0, 2, "two")], INVALID),
    "map over the end of a mapping": ([("map", 0, 2, "two"), ("map", 1, 2, "two")], INVALID),
    "map over a part of a mapping": ([("map", 0, 2, "two"), ("map", 1, 1, "one")], INVALID),
    "map outside of any range": ([("map", 1 << 19, 1, "one")], INVALID),
    "access": ([("map", 0, 2, "two"), ("access", 0, 2)], None),
    "access twice": ([("map", 0, 2, "two"), ("access", 0, 2), ("access", 0, 2)], None),
    "access two mappings": ([("map", 0, 2, "two"), ("map", 2, 1, "one"), ("access", 0, 3)], None),
    "access nothing": ([("map", 0, 2, "two"), ("access", 0, 0)], INVALID),
    "access what is not mapped": ([("access", 0, 1)], INVALID),
    "access a part of a mapping": ([("map", 0, 2, "two"), ("access", 0, 1)], INVALID),
    "access the end of a mapping": ([("map", 0, 2, "two"), ("access", 1, 1)], INVALID),
    "access a mapping and a gap": ([("map", 0, 2, "two"), ("access", 0, 3)], INVALID),
    "access half a granule": ([("map", 0, 2, "two"), ("access", 0, 0.5)], INVALID),
    "unmap": ([("map", 0, 2, "two"), ("unmap", 0, 2)], None),
    "unmap two mappings": ([("map", 0, 2, "two"), ("map", 2, 1, "one"), ("unmap", 0, 3)], None),
    "unmap a part of a mapping": ([("map", 0, 2, "two"), ("unmap", 0, 1)], INVALID),
    "unmap the end of a mapping": ([("map", 0, 2, "two"), ("unmap", 1, 1)], INVALID),
    "unmap one and a half": ([("map", 0, 2, "two"), ("map", 2, 1, "one"), ("unmap", 1, 2)], INVALID),
    "unmap what is not mapped": ([("unmap", 5, 1)], None),
    "unmap a mapping and a gap": ([("map", 0, 2, "two"), ("unmap", 0, 4)], None),
    "unmap twice": ([("map", 0, 2, "two"), ("unmap", 0, 2), ("unmap", 0, 2)], None),
    "unmap in a freed range": ([("free", 0, RANGE), ("unmap", 0, 1)], INVALID),
    "unmap outside of any range": ([("unmap", 1 << 19, 1)], INVALID),
    "map where a mapping was": ([("map", 0, 2, "two"), ("unmap", 0, 2), ("map", 0, 1, "one")], None),
    "free the range": ([("free", 0, RANGE)], None),
    "free the range twice": ([("free", 0, RANGE), ("free", 0, RANGE)], INVALID),
    "free a range with mappings": ([("map", 0, 1, "one"), ("free", 0, RANGE)], INVALID),
    "free a part of the range": ([("free", 0, 1)], INVALID),
    "free the end of the range": ([("free", 1, RANGE - 1)], INVALID),
    "free more than the range": ([("free", 0, RANGE + 1)], INVALID),
    "map into a freed range": ([("free", 0, RANGE), ("map", 0, 1, "one")], INVALID),
    "give up mapped memory": ([("map", 0, 1, "one"), ("release", "one")], None),
    "give up mapped memory twice": ([("map", 0, 1, "one"), ("release", "one"), ("release", "one")], INVALID),
    "unmap memory that was given up": ([("map", 0, 1, "one"), ("release", "one"), ("unmap", 0, 1)], None),
}


@dataclass
class Bench:
    """A reserved range and two pieces of memory to try the driver on, all given back at the end."""

    memory: VirtualMemory
    base: int
    handles: dict[str, int]
    held: set[str] = field(default_factory=lambda: {"one", "two"})
    reserved: bool = True

    def do(self, step: Step) -> None:
        verb, *given = step
        granule = self.memory.granularity
        names = [value for value in given if isinstance(value, str)]
        bytes_ = [int(value * granule) for value in given if not isinstance(value, str)]
        if verb == "create":
            self.memory.release_memory(self.memory.create_memory(bytes_[0]))
        elif verb == "reserve":
            self.memory.free_address(self.memory.reserve_address(bytes_[0]), bytes_[0])
        elif verb == "map":
            self.memory.map(self.base + bytes_[0], bytes_[1], self.handles[names[0]])
        elif verb == "access":
            self.memory.set_access(self.base + bytes_[0], bytes_[1])
        elif verb == "unmap":
            self.memory.unmap(self.base + bytes_[0], bytes_[1])
        elif verb == "free":
            self.memory.free_address(self.base + bytes_[0], bytes_[1])
            self.reserved = False
        else:
            assert verb == "release"
            self.memory.release_memory(self.handles[names[0]])
            self.held.remove(names[0])

    def close(self) -> None:
        size = RANGE * self.memory.granularity
        if self.reserved:
            self.memory.unmap(self.base, size)
            self.memory.free_address(self.base, size)
        for name in self.held:
            self.memory.release_memory(self.handles[name])


class DeviceConformance:
    """The suite. A subclass defines the fixtures ``executor``, ``stream``, ``memory`` and ``kernel``."""

    @pytest.fixture
    def allocator(self, stream: se.Stream) -> Iterator[DeviceAddressVmmAllocator]:
        with DeviceAddressVmmAllocator([DeviceConfig(stream, batch=BatchLimits(4, 64 << 20))]) as allocator:
            yield allocator

    @pytest.fixture
    def bench(self, memory: VirtualMemory) -> Iterator[Bench]:
        granule = memory.granularity
        handles = {"one": memory.create_memory(granule), "two": memory.create_memory(2 * granule)}
        bench = Bench(memory, memory.reserve_address(RANGE * granule), handles)
        yield bench
        bench.close()

    # Virtual memory

    @pytest.mark.parametrize(("steps", "error"), VERDICTS.values(), ids=VERDICTS)
    def test_the_driver_says(self, bench: Bench, steps: list[Step], error: str | None) -> None:
        for step in steps[:-1]:
            bench.do(step)
        if error is None:
            bench.do(steps[-1])
        else:
            with pytest.raises(DriverError, match=error) as caught:
                bench.do(steps[-1])
            exhausted = error == OUT_OF_MEMORY
            assert caught.value.code is (StatusCode.RESOURCE_EXHAUSTED if exhausted else StatusCode.INTERNAL)

    def test_granularity_is_a_power_of_two(self, executor: se.StreamExecutor) -> None:
        granule = executor.granularity
        assert granule >= 4096
        assert granule & (granule - 1) == 0

    def test_allocations_and_reservations_are_rounded_up(self, executor: se.StreamExecutor) -> None:
        with executor.create_allocation(1) as allocation, executor.create_reservation(1) as reservation:
            assert allocation.size == reservation.address.size == executor.granularity
            assert reservation.address.opaque % executor.granularity == 0

    def test_reservations_do_not_overlap(self, executor: se.StreamExecutor) -> None:
        reservations = [executor.create_reservation(executor.granularity) for _ in range(8)]
        ranges = [reservation.address for reservation in reservations]
        assert not any(a.overlaps(b) for a in ranges for b in ranges if a is not b)
        for reservation in reservations:
            reservation.close()

    # Stream

    def test_the_timeline_begins_at_zero_and_reaches_what_was_enqueued(self, stream: se.Stream) -> None:
        assert stream.completed_seqno() == 0
        stream.enqueue_seqno(1)
        stream.enqueue_seqno(7)
        while stream.completed_seqno() < 7:
            stream.wait_microseconds(50)
        assert stream.completed_seqno() == 7

    def test_synchronize_finishes_everything(self, stream: se.Stream) -> None:
        for seqno in range(1, 100):
            stream.enqueue_seqno(seqno)
        stream.synchronize()
        assert stream.completed_seqno() == 99

    def test_copies_are_enqueued_within_memory_of_the_device(
        self, executor: se.StreamExecutor, stream: se.Stream, allocator: DeviceAddressVmmAllocator
    ) -> None:
        first, second = (allocator.allocate(executor.device_ordinal, 1024) for _ in range(2))
        content = ctypes.create_string_buffer(bytes(1024))
        stream.memcpy_h2d(first, ctypes.addressof(content))
        stream.memcpy_d2d(second, first)
        stream.synchronize()
        for address in (first, second):
            allocator.deallocate(executor.device_ordinal, address)

    # Command buffer

    def test_a_command_buffer_is_recorded_updated_and_submitted(
        self,
        executor: se.StreamExecutor,
        stream: se.Stream,
        kernel: se.Kernel,
        allocator: DeviceAddressVmmAllocator,
    ) -> None:
        addresses = [allocator.allocate(executor.device_ordinal, 1024) for _ in range(3)]
        buffer = executor.create_command_buffer()
        launch = buffer.create_launch(kernel, se.LaunchDimensions(), [addresses[0]])
        copy = buffer.create_memcpy(addresses[1], addresses[0], [launch])
        fill = buffer.create_memset(addresses[1], b"\x01\x02\x03\x04", [copy])
        assert buffer.state is se.CommandBufferState.CREATE
        buffer.finalize()
        buffer.submit(stream)
        buffer.update()
        buffer.update_launch(launch, kernel, se.LaunchDimensions(), [addresses[2]])
        buffer.update_memcpy(copy, addresses[2], addresses[1])
        buffer.update_memset(fill, addresses[0], b"\x00")
        buffer.finalize()
        buffer.submit(stream)
        buffer.submit(stream)
        stream.synchronize()
        buffer.close()
        buffer.close()

    def test_command_buffers_nest(
        self,
        executor: se.StreamExecutor,
        stream: se.Stream,
        kernel: se.Kernel,
        allocator: DeviceAddressVmmAllocator,
    ) -> None:
        address = allocator.allocate(executor.device_ordinal, 1024)
        buffers = [executor.create_command_buffer() for _ in range(3)]
        for nested in buffers[:2]:
            nested.create_launch(kernel, se.LaunchDimensions(), [address])
            nested.finalize()
        outer = buffers[2]
        command = outer.create_nested(buffers[0])
        outer.finalize()
        outer.submit(stream)
        stream.synchronize()
        outer.update()
        outer.update_nested(command, buffers[1])
        outer.finalize()
        outer.submit(stream)
        stream.synchronize()
        for buffer in reversed(buffers):
            buffer.close()

    @pytest.mark.parametrize("state", se.CommandBufferState)
    def test_a_call_in_the_wrong_state_names_it_and_changes_nothing(
        self,
        executor: se.StreamExecutor,
        allocator: DeviceAddressVmmAllocator,
        kernel: se.Kernel,
        state: se.CommandBufferState,
    ) -> None:
        buffer, stream = executor.create_command_buffer(), allocator.stream(executor.device_ordinal)
        address = allocator.allocate(executor.device_ordinal, 16)
        command = buffer.create_memset(address, b"\0")
        if state is not se.CommandBufferState.CREATE:
            buffer.finalize()
        if state is se.CommandBufferState.UPDATE:
            buffer.update()
        create, update, final = se.CommandBufferState
        calls = [
            (lambda: buffer.create_memset(address, b"\0"), {create}),
            (lambda: buffer.create_launch(kernel, se.LaunchDimensions(), []), {create}),
            (lambda: buffer.update_memset(command, address, b"\0"), {update}),
            (lambda: buffer.update(), {final}),
            (lambda: buffer.finalize(), {create, update}),
            (lambda: buffer.submit(stream), {final}),
        ]
        for call, legal in calls:
            if state not in legal:
                with pytest.raises(StatusError, match=state.name) as caught:
                    call()
                assert caught.value.code is StatusCode.FAILED_PRECONDITION
                assert buffer.state is state
        buffer.close()

    # Allocator

    def test_memory_is_reused_and_given_back(self, allocator: DeviceAddressVmmAllocator) -> None:
        ordinal = allocator.device_ordinals[0]
        first = allocator.allocate(ordinal, 1000)
        allocator.deallocate(ordinal, first)
        second = allocator.allocate(ordinal, 2000)
        assert second.opaque == first.opaque
        allocator.deallocate(ordinal, second)
        allocator.synchronize_pending_operations(ordinal)
        assert allocator.statistics(ordinal).allocated == 0
        assert allocator.allocate(ordinal, 0) == NULL_ADDRESS

    def test_a_slot_is_remapped_to_one_buffer_after_another(
        self, allocator: DeviceAddressVmmAllocator
    ) -> None:
        ordinal = allocator.device_ordinals[0]
        granule = allocator.granularity(ordinal)
        reservation = allocator.create_reservation(ordinal, 2 * granule)
        buffers = [allocator.allocate(ordinal, 1000) for _ in range(3)]
        for buffer in [*buffers, *buffers]:
            alias = allocator.map(ordinal, buffer, reservation, granule, granule)
            assert alias == reservation.address.slice(granule, granule)
            assert allocator.get_raw_allocation(ordinal, alias) is allocator.get_raw_allocation(
                ordinal, buffer
            )
            allocator.unmap(ordinal, reservation, granule, granule)
        for buffer in buffers:
            allocator.deallocate(ordinal, buffer)
        allocator.synchronize_pending_operations(ordinal)
        reservation.close()

    def test_a_temporary_keeps_its_memory_in_its_slot(self, allocator: DeviceAddressVmmAllocator) -> None:
        ordinal = allocator.device_ordinals[0]
        granule = allocator.granularity(ordinal)
        reservation = allocator.create_reservation(ordinal, granule)
        raw = set()
        for _ in range(5):
            temp = allocator.allocate_at(ordinal, granule, reservation, 0)
            raw.add(allocator.get_raw_allocation(ordinal, temp))
            allocator.deallocate(ordinal, temp)
        assert len(raw) == 1
        allocator.synchronize_pending_operations(ordinal)
        reservation.close()
