"""The VMM allocator, made to hand out recorded addresses: which free buffer it reuses and where fresh memory
lies.

Everything else, aliases, deferred frees, errors, is the allocator's own. Invariant: a recorded address that
is handed out again was given back before, explicitly or, where the recording does not tell, at this moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from jax_cmdbuf.events import NO_SINK, Allocate, EventSink
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import DriverError, MemoryReservation
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig

__all__ = ["TracedAllocator"]


class TracedAllocator(DeviceAddressVmmAllocator):
    """An allocator whose choices are recorded ones where a recording has them."""

    def __init__(
        self, config: DeviceConfig, choose_address: Callable[[int], None], sink: EventSink = NO_SINK
    ) -> None:
        """``choose_address`` tells the device where its next address range begins."""
        super().__init__([config], sink)
        self._ordinal = config.stream.executor.device_ordinal
        self._choose_address = choose_address
        self._script: dict[int, deque[int]] = {}
        self._reservation: int | None = None

    def follow(self, allocated: Iterable[DeviceAddress], reservation: int | None) -> None:
        """The next allocations of each size take these addresses, in order, and the next reservation that
        one.
        """
        self._script = {}
        for address in allocated:
            self._script.setdefault(address.size, deque()).append(address.opaque)
        self._reservation = reservation

    def remaining(self, size: int) -> int:
        """How many recorded addresses of this size were not handed out yet."""
        return len(self._script.get(size, ()))

    def allocate(self, device_ordinal: int, size: int, device_count: int = 1) -> DeviceAddress:
        """See the base class; takes the recorded address if there is one."""
        script = self._script.get(size)
        if not script:
            return super().allocate(device_ordinal, size, device_count)
        address = self.adopt(DeviceAddress(script.popleft(), size))
        self.sink.emit(Allocate(address.opaque, size))
        return address

    def create_reservation(self, device_ordinal: int, size: int) -> MemoryReservation:
        """See the base class; takes the recorded address if there is one."""
        if self._reservation is None:
            return super().create_reservation(device_ordinal, size)
        chosen, self._reservation = self._reservation, None
        self._choose_address(chosen)
        try:
            return super().create_reservation(device_ordinal, size)
        except DriverError:
            # A range whose release was pending may lie there.
            self.synchronize_pending_operations(device_ordinal)
            return super().create_reservation(device_ordinal, size)

    def adopt(self, wanted: DeviceAddress) -> DeviceAddress:
        """Makes ``wanted`` an active allocation: reused if it is known, else fresh."""
        device = self._device(self._ordinal)
        with device.lock:
            record = device.records.get(wanted.opaque)
            if record is not None and not record.stale_seqno:
                device.deallocate(record.address)
            fits = record is not None and record.raw_allocation.size == round_up(
                wanted.size, device.granularity
            )
            if record is not None and fits and record.reservation is not None:
                device.deferred.take(record)
                record.address = wanted
                return wanted
            if record is not None:
                device.synchronize()
            self._choose_address(wanted.opaque)
            try:
                # Not ``allocate``, which would choose among the pending frees.
                return device._create(wanted.size, False)
            except DriverError:
                device.synchronize()
                return device._create(wanted.size, False)

    def is_active(self, address: int) -> bool:
        """Whether an allocation at this address was handed out and not given back."""
        record = self._device(self._ordinal).records.get(address)
        return record is not None and not record.stale_seqno

    def give_back(self, addresses: Sequence[int]) -> None:
        """Frees those of the addresses that are active: what the recorded caller freed."""
        device = self._device(self._ordinal)
        for address in addresses:
            record = device.records.get(address)
            if record is not None and not record.stale_seqno:
                self.deallocate(self._ordinal, record.address)
