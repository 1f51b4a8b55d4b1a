"""A CUDA device: the driver's own rules that the simulated device imitates, and what only CUDA has."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from jax_cmdbuf.stream_executor.cuda import CudaExecutor, CudaStream, CudaVirtualMemory
from jax_cmdbuf.stream_executor.cuda_command_buffer import CudaKernel
from jax_cmdbuf.stream_executor.cuda_driver import call, current_context
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from tests.stream_executor.conformance import DeviceConformance

pytestmark = pytest.mark.gpu

SIZE = 4096

# A kernel that takes one pointer and does nothing with it.
PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry nothing(.param .u64 pointer) { ret; }
\0"""


@pytest.fixture(scope="module")
def executor() -> Iterator[CudaExecutor]:
    executor = CudaExecutor(0)
    with current_context(executor.context):
        yield executor


class TestCudaDevice(DeviceConformance):
    @pytest.fixture
    def memory(self, executor: CudaExecutor) -> CudaVirtualMemory:
        return executor.memory

    @pytest.fixture
    def stream(self, executor: CudaExecutor) -> Iterator[CudaStream]:
        stream = executor.create_stream()
        yield stream
        stream.close()

    @pytest.fixture
    def kernel(self, executor: CudaExecutor) -> CudaKernel:
        return executor.load_kernel(PTX, "nothing")


def write(address: DeviceAddress, values: np.ndarray) -> None:
    call("cuMemcpyHtoD", address.opaque, values.ctypes.data, values.nbytes)


def read(address: DeviceAddress, dtype: type = np.float32) -> np.ndarray:
    values = np.zeros(address.size // np.dtype(dtype).itemsize, dtype)
    call("cuMemcpyDtoH", values.ctypes.data, address.opaque, values.nbytes)
    return values


def test_granularity_is_what_the_recordings_have(executor: CudaExecutor) -> None:
    assert executor.granularity == 2 << 20


def test_one_physical_memory_seen_through_two_reservations(executor: CudaExecutor) -> None:
    with executor.create_allocation(SIZE) as memory:
        first, second = executor.create_reservation(SIZE), executor.create_reservation(SIZE)
        with first, second, first.map_to(0, memory.size, memory), second.map_to(0, memory.size, memory):
            expected = np.arange(SIZE // 4, dtype=np.float32)
            write(first.address.slice(0, SIZE), expected)
            np.testing.assert_array_equal(read(second.address.slice(0, SIZE)), expected)


def test_the_driver_refuses_a_mapping_over_a_mapping(executor: CudaExecutor) -> None:
    memory, range_ = executor.create_allocation(SIZE), executor.create_reservation(SIZE)
    refused = pytest.raises(DriverError, match="cuMemMap")
    with memory, range_, range_.map_to(0, memory.size, memory), refused:
        range_.map_to(0, memory.size, memory)


def test_memory_of_another_owner_is_brought_in_by_its_address(executor: CudaExecutor) -> None:
    memory, owner = executor.create_allocation(SIZE), executor.create_reservation(SIZE)
    with memory, owner, owner.map_to(0, memory.size, memory):
        executor.memory.release_memory(executor.memory.retain_memory(owner.address.opaque))


def test_memory_of_another_allocator_cannot_be_retained(executor: CudaExecutor) -> None:
    foreign = executor.allocate_foreign(SIZE)
    try:
        with pytest.raises(DriverError, match="cuMemRetainAllocationHandle"):
            executor.memory.retain_memory(foreign.opaque)
    finally:
        executor.free_foreign(foreign)


def test_the_stream_writes_the_timeline(executor: CudaExecutor) -> None:
    stream = executor.create_stream()
    assert stream.completed_seqno() == 0
    stream.enqueue_seqno(1)
    stream.enqueue_seqno(5)
    stream.synchronize()
    assert stream.completed_seqno() == 5
    stream.close()
    stream.close()


def test_copies_carry_bytes_in_the_stream_s_order(executor: CudaExecutor) -> None:
    stream = executor.create_stream()
    with DeviceAddressVmmAllocator([DeviceConfig(stream)]) as allocator:
        first, second = (allocator.allocate(0, SIZE) for _ in range(2))
        for turn in range(3):
            content = np.full(SIZE // 4, turn, np.float32)
            stream.memcpy_h2d(first, content.ctypes.data)
            content[:] = -1
            stream.memcpy_d2d(second, first)
            stream.synchronize()
            assert (read(second) == turn).all()
        for address in (first, second):
            allocator.deallocate(0, address)
    stream.close()


def test_a_remapped_buffer_keeps_its_address_and_its_bytes(executor: CudaExecutor) -> None:
    stream = executor.create_stream()
    size = executor.granularity
    with (
        DeviceAddressVmmAllocator([DeviceConfig(stream)]) as allocator,
        allocator.create_reservation(0, size) as slot,
    ):
        held = []
        for turn in range(3):
            buffer = allocator.allocate(0, SIZE)
            write(buffer, np.full(SIZE // 4, turn, np.float32))
            alias = allocator.map(0, buffer, slot, 0, size)
            assert alias.opaque == slot.address.opaque
            assert (read(alias.slice(0, SIZE)) == turn).all()
            allocator.unmap(0, slot, 0, size)
            held.append(buffer)
        for buffer in held:
            allocator.deallocate(0, buffer)
        allocator.synchronize_pending_operations(0)
    stream.close()


def test_nothing_is_left_behind(executor: CudaExecutor) -> None:
    def cycle() -> None:
        stream = executor.create_stream()
        with executor.create_allocation(64 << 20) as memory, executor.create_reservation(64 << 20) as range_:
            range_.map_to(0, memory.size, memory).close()
        stream.close()

    cycle()
    gc.collect()
    free, _ = call("cuMemGetInfo")
    for _ in range(50):
        cycle()
    assert call("cuMemGetInfo")[0] == free
