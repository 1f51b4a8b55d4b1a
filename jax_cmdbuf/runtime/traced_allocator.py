"""The VMM allocator, made to hand out recorded addresses: which free buffer it reuses, where fresh memory
lies.

Everything else, aliases, deferred frees, errors, is the allocator's own. Invariant: a recorded address that
is handed out again was given back before, explicitly or, where the recording does not tell, at this moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from jax_cmdbuf.events import NO_SINK, EventSink
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up
from jax_cmdbuf.stream_executor.memory import DriverError, MemoryReservation
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from jax_cmdbuf.stream_executor.vmm_device import VmmDevice

__all__ = ["TracedAllocator"]


class _TracedDevice(VmmDevice):
    """A device of the allocator that takes its choices from a script where it has one.

    Attributes:
      script: size in bytes -> recorded addresses for the next allocations of that size.
    """

    def __init__(self, config: DeviceConfig, choose_address: Callable[[int], None]) -> None:
        super().__init__(config.stream, config.budget, config.batch)
        self._choose_address = choose_address
        self.script: dict[int, deque[int]] = {}

    def allocate(self, size: int, multi_device: bool) -> DeviceAddress:
        """See the base class; at the recorded address if there is one."""
        script = self.script.get(size)
        if not script:
            return super().allocate(size, multi_device)
        return self.adopt(DeviceAddress(script.popleft(), size), multi_device)

    def adopt(self, wanted: DeviceAddress, multi_device: bool = False) -> DeviceAddress:
        """Makes ``wanted`` an active allocation: reused if it is known, else fresh."""
        record = self.records.get(wanted.opaque)
        if record is not None and not record.stale_seqno:
            self.deallocate(record.address)
        if record is not None:
            rounded = round_up(wanted.size, self.granularity)
            if record.reservation is not None and record.raw_allocation.size == rounded:
                self.deferred.take(record)
                record.address = wanted
                return wanted
            self.synchronize()
        self._choose_address(wanted.opaque)
        try:
            return self._create(wanted.size, multi_device)
        except DriverError:
            # Something whose release was pending may have lain there.
            self.synchronize()
            return self._create(wanted.size, multi_device)


class TracedAllocator(DeviceAddressVmmAllocator):
    """An allocator for one device whose choices are recorded ones where a recording has them."""

    def __init__(
        self, config: DeviceConfig, choose_address: Callable[[int], None], sink: EventSink = NO_SINK
    ) -> None:
        """``choose_address`` tells the device where its next address range begins."""
        super().__init__([config], sink)
        self._ordinal = config.stream.executor.device_ordinal
        self._choose_address = choose_address
        self._traced = self._devices[self._ordinal] = _TracedDevice(config, choose_address)
        self._reservation: int | None = None

    def follow(self, allocated: Iterable[DeviceAddress], reservation: int | None) -> None:
        """Scripts what comes next.

        Args:
          allocated: the next allocations of each size take these addresses, in order.
          reservation: where the next reservation begins; None: where the device likes.
        """
        script: dict[int, deque[int]] = {}
        for address in allocated:
            script.setdefault(address.size, deque()).append(address.opaque)
        self._traced.script = script
        self._reservation = reservation

    def remaining(self, size: int) -> int:
        """How many recorded addresses of this size were not handed out yet."""
        return len(self._traced.script.get(size, ()))

    def create_reservation(self, device_ordinal: int, size: int) -> MemoryReservation:
        """See the base class; at the recorded address if there is one."""
        if self._reservation is None:
            return super().create_reservation(device_ordinal, size)
        self._choose_address(self._reservation)
        self._reservation = None
        try:
            return super().create_reservation(device_ordinal, size)
        except DriverError:
            # Something whose release was pending may have lain there.
            self.synchronize_pending_operations(device_ordinal)
            return super().create_reservation(device_ordinal, size)

    def adopt(self, wanted: DeviceAddress) -> DeviceAddress:
        """Makes ``wanted`` an active allocation: what some other program of the process allocated."""
        with self._traced.lock:
            return self._traced.adopt(wanted)

    def is_active(self, address: DeviceAddress) -> bool:
        """Whether this allocation was handed out and not given back."""
        record = self._traced.records.get(address.opaque)
        return record is not None and not record.stale_seqno and record.address == address

    def give_back(self, addresses: Iterable[int]) -> None:
        """Frees those of the addresses that are active: what the recorded caller freed."""
        for address in addresses:
            record = self._traced.records.get(address)
            if record is not None and not record.stale_seqno:
                self.deallocate(self._ordinal, record.address)
