"""One simulated GPU: what is made is given back, and who makes scalars passes memory through."""

from __future__ import annotations

from jax_cmdbuf.api.simulated_gpu import ForeignMemory, SimulatedGpu
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS


def test_a_scalar_takes_a_second_buffer_for_a_moment():
    gpu = SimulatedGpu(0)
    array = gpu.create(64, is_scalar=False)
    scalar = gpu.create(4, is_scalar=True)
    # What passed through is the next to be handed out.
    passed = gpu.allocate(4)
    assert len({array.opaque, scalar.opaque, passed.opaque}) == 3
    for address in (array, scalar, passed, NULL_ADDRESS):
        gpu.free(address)
    gpu.close()
    assert gpu.device.executor.memory.is_empty


def test_foreign_memory_is_no_memory_of_the_allocator():
    gpu = SimulatedGpu(1)
    memory = ForeignMemory(gpu, 100)
    assert memory.address.size == 100
    assert gpu.device.executor.memory.resolve(memory.address) is not None
    memory.close()
    gpu.close()
    assert gpu.device.executor.memory.is_empty
