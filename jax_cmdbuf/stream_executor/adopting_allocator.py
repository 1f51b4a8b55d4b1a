"""A VMM allocator that also maps buffers which another VMM allocator, XLA's, handed out.

Such a buffer's memory is held by its driver handle while it has an alias here, and looked up again at every
use: its owner may free it and get other memory at the same address. Invariant: an alias always leads to the
memory that its source address leads to when it is mapped, and no owner's address is ever unmapped or freed
here.
"""

from __future__ import annotations

from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import (
    MemoryAllocation,
    MemoryReservation,
    is_backed_by,
    retain_allocation,
)
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator
from jax_cmdbuf.stream_executor.vmm_device import VmmDevice
from jax_cmdbuf.stream_executor.vmm_records import AdoptedRecord

__all__ = ["AdoptingVmmAllocator"]


class AdoptingVmmAllocator(DeviceAddressVmmAllocator):
    """``DeviceAddressVmmAllocator`` for one program, whose arguments and results are another's buffers."""

    def is_exact_address(self, device_ordinal: int, address: DeviceAddress) -> bool:
        """Whether this is an allocator address, of ours or of whoever else allocates in whole pieces."""
        device = self._devices[device_ordinal]
        with device.lock:
            return _adopt(device, address)

    def map(
        self,
        device_ordinal: int,
        source: DeviceAddress,
        reservation: MemoryReservation,
        offset: int,
        size: int,
    ) -> DeviceAddress:
        """See the base class; ``source`` may be another allocator's address as well."""
        device = self._devices[device_ordinal]
        with device.lock:
            _adopt(device, source)
        return super().map(device_ordinal, source, reservation, offset, size)


def _adopt(device: VmmDevice, address: DeviceAddress) -> bool:
    """Makes the device's records say what is at ``address`` now; False: nothing that can be mapped."""
    record = device.records.get(address.opaque)
    if record is not None and not isinstance(record, AdoptedRecord):
        return record.address.size == address.size and not record.releasing
    memory = device.executor.memory
    if record is not None:
        if record.address.size == address.size and is_backed_by(memory, address, record.raw_allocation):
            return True
        _let_go(device, record)
        if device.records.get(address.opaque) is record:
            return False  # in use: whoever maps it is told so
    if not address.opaque:
        return False
    allocation = retain_allocation(memory, address)
    if allocation is None:
        return False
    _track(device, address, allocation)
    return True


def _track(device: VmmDevice, address: DeviceAddress, allocation: MemoryAllocation) -> None:
    try:
        for record in list(device.records.values()):
            if isinstance(record, AdoptedRecord) and record.alias is None:
                _let_go(device, record)
    except BaseException:
        allocation.close()
        raise
    device.records[address.opaque] = AdoptedRecord(address, allocation)
    device.allocated += allocation.size


def _let_go(device: VmmDevice, record: AdoptedRecord) -> None:
    """Gives a buffer's memory up, after its pending unmap; one that is mapped stays.

    Raises:
      DriverError: the driver refused; the record stays.
    """
    if record.alias is not None:
        if not record.alias.stale_seqno:
            return
        device.release([record.alias])
    record.close()
    device.allocated -= record.raw_allocation.size
    del device.records[record.address.opaque]
