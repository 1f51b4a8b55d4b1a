"""Constants: one block per device, loaded once, released after the work that reads it."""

from __future__ import annotations

from jax_cmdbuf.runtime.constants import LoadedConstants
from jax_cmdbuf.stream_executor.simulated import StreamMode


def test_constants_are_loaded_once_per_device_side_by_side(world, make, new_world):
    allocations = [make.constant(0, 100), make.parameter(1), make.constant(2, 300), make.constant(3, 0)]
    constants = LoadedConstants(make.executable(allocations, ()))
    addresses = constants.on(world.stream)
    assert list(addresses) == [0, 2]
    assert [address.size for address in addresses.values()] == [100, 300]
    assert addresses[2].opaque - addresses[0].opaque == 256
    assert constants.on(world.executor.create_stream()) is addresses
    other = new_world()
    assert constants.on(other.stream) is not addresses
    constants.close()
    constants.close()
    assert other.executor.memory.is_empty


def test_a_program_without_constants_takes_no_memory(world, make):
    constants = LoadedConstants(make.executable([make.temp(0)], ()))
    assert constants.on(world.stream) == {}
    assert world.executor.memory.is_empty
    constants.close()


def test_memory_goes_after_the_work_that_reads_it(make, new_world):
    world = new_world(StreamMode.ON_WAIT)
    constants = LoadedConstants(make.executable([make.constant(0)], ()))
    world.stream.submit([constants.on(world.stream)[0]])
    constants.close()
    assert world.stream.pending_count == 0
    assert world.executor.fault is None
    assert world.executor.memory.is_empty
    world.close()
