"""A simulated device with an allocator, as the tests of the allocator's rules use it."""

from __future__ import annotations

from jax_cmdbuf.events import EventLog
from jax_cmdbuf.stream_executor.deferred_operations import XLA_BATCH
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, StreamMode
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig

GRANULE = 2 << 20


class Device:
    """One device, its allocator, and a reservation of four slots of one granule."""

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
