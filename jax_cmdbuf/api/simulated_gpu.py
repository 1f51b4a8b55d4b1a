"""One simulated GPU of the simulated runtime: its allocator, what its executions tell, memory of others.

Invariant: what is allocated here is freed here, once.
"""

from __future__ import annotations

from jax_cmdbuf.api.session import SimulatedDevice, simulated_device
from jax_cmdbuf.events import EventLog
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.guard import Guard
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig

__all__ = ["ForeignMemory", "SimulatedGpu"]


class ForeignMemory:
    """Memory that some other library allocated on the device.

    Attributes:
      address: where it is.
    """

    def __init__(self, gpu: SimulatedGpu, size: int) -> None:
        executor = gpu.device.executor
        rounded = round_up(max(size, 1), executor.granularity)
        memory, reservation = executor.create_allocation(rounded), executor.create_reservation(rounded)
        mapping = reservation.map_to(0, rounded, memory)
        self.address = DeviceAddress(reservation.address.opaque, size)
        self._handles = (mapping, reservation, memory)

    def close(self) -> None:
        """Releases it."""
        for handle in self._handles:
            handle.close()


class SimulatedGpu:
    """A device, its VMM allocator, and the log and table of the execution that runs on it.

    Attributes:
      ordinal: its number, which is the JAX device's id.
      device: the device and its stream.
      allocator: where its buffers come from.
      log: takes the events of executions.
      owning: the owning table of the last execution, until it is taken away.
    """

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.device: SimulatedDevice = simulated_device(ordinal)
        self.allocator = DeviceAddressVmmAllocator((DeviceConfig(self.device.stream),))
        self.log = EventLog()
        self.owning: BufferAllocations | None = None

    def options(self, guard: Guard) -> RunOptions:
        """Options for an execution here."""
        return RunOptions(self.allocator, self.device.stream, self.log, guard, self._on_tables)

    def _on_tables(
        self, owning: BufferAllocations, table: BufferAllocations, persistent: PersistentSet
    ) -> None:
        self.owning = owning

    def allocate(self, size: int) -> DeviceAddress:
        """A buffer of ``size`` bytes."""
        return self.allocator.allocate(self.ordinal, size)

    def create(self, size: int, *, is_scalar: bool) -> DeviceAddress:
        """A buffer for an array that the user's own code has just made.

        A scalar is taken to be a host's number, as in ``jnp.int32(i)``: JAX puts the number on the device and
        then converts it, which takes a second buffer for a moment, before it. Where a larger array comes from
        cannot be told from it; it gets its buffer and nothing else.
        """
        if not is_scalar:
            return self.allocate(size)
        passing = self.allocate(size)
        address = self.allocate(size)
        self.free(passing)
        return address

    def free(self, address: DeviceAddress) -> None:
        """Gives a caller's buffer back; the null address is nothing."""
        if not address.is_null:
            self.allocator.deallocate(self.ordinal, address)

    def close(self) -> None:
        """Gives up all memory."""
        self.allocator.close()
