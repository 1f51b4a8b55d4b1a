"""One signature of a function as a program of ours, run on buffers that XLA hands it.

Invariants: arguments and results stay XLA's, what lies between them is ours; nothing of a program is released
while the device may still use it; after a failure the next run works, or fails with the same error.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from jax_cmdbuf.api.session import Device
from jax_cmdbuf.events import Event
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, load_target
from jax_cmdbuf.executable.thunks import KernelInfo
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.guard import Guard
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.adopting_allocator import AdoptingVmmAllocator
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from jax_cmdbuf.stream_executor.memory import retain_allocation
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceConfig
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["NOT_VMM", "EventCounts", "GraphProgram", "ProgramOptions"]

NOT_VMM = (
    "XLA's buffers are not VMM-backed here, so nothing is remapped "
    "(set XLA_PYTHON_CLIENT_ALLOCATOR=vmm before JAX starts)"
)


class EventCounts:
    """A sink that counts events by kind.

    Attributes:
      counts: kind -> how many.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def emit(self, event: Event, /) -> None:
        """Counts the event."""
        self.counts[event.kind] += 1


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """How programs run.

    Attributes:
      mode: the update mode.
      registry: where their profiles live.
      guard: what to do where XLA would fail or thrash.
      open_device: (device ordinal, stream handle) -> the device.
      client_is_vmm: whether XLA's client allocates with the VMM allocator; the first buffer of a pool may
        look as if it did.
    """

    mode: CommandBufferUpdateMode
    registry: ProfileRegistry
    guard: Guard
    open_device: Callable[[int, int], Device]
    client_is_vmm: bool = True


class GraphProgram:
    """One program. Safe to call from any thread; its runs do not overlap on the host.

    Attributes:
      name: of the function, for messages.
      executable: what XLA compiled.
      options: how it runs.
      events: what its runs did.
      runs: how many succeeded.
    """

    def __init__(
        self, name: str, executable: Executable, options: ProgramOptions, paths: Mapping[int, str]
    ) -> None:
        """Takes no memory on any device.

        Args:
          name: of the function.
          executable: what XLA compiled; all of its thunks can be recorded.
          options: how it runs.
          paths: allocation index -> argument path.

        Raises:
          InputError: the update mode is not modelled.
        """
        self.name = name
        self.executable = executable
        self.options = options
        self.events = EventCounts()
        self.runs = 0
        self._paths = paths
        self._lock = threading.Lock()
        # jaxlib before 0.12 does not store the device; only the CUDA versions in it matter here.
        device = executable.device or load_target(DEFAULT_TARGET).device
        self._conversion = convert(executable, device=device)
        self._loaded: GpuExecutable | None = self._load()
        self._placed: dict[tuple[int, int], _Placed] = {}

    def _load(self) -> GpuExecutable:
        options = self.options
        return GpuExecutable(self.executable, self._conversion, options.mode, options.registry, self._paths)

    def run(self, ordinal: int, stream: int, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Enqueues one execution.

        Args:
          ordinal: the device.
          stream: XLA's ``CUstream`` there.
          arguments: address of each parameter, in order; those of no bytes are not looked at.
          results: address of each result.

        Raises:
          StatusError: the device or the machinery refused; says what.
        """
        with self._lock:
            placed = self._placed.get((ordinal, stream))
            device = placed.device if placed is not None else self.options.open_device(ordinal, stream)
            with device.activate():
                if self._loaded is None:
                    self._loaded = self._load()
                if placed is None:
                    placed = _Placed(self._loaded, device, self.options, self.events)
                    self._placed[ordinal, stream] = placed
                placed.run(self._loaded, arguments, results)
                self.runs += 1

    @property
    def remapping_reason(self) -> str:
        """Why no address is remapped on some device where it ran; "" when nothing stands in the way."""
        return NOT_VMM if any(each.is_vmm is False for each in list(self._placed.values())) else ""

    def snapshots(self) -> tuple[RemappingSnapshot, ...]:
        """Its profiles, one for each device on which it remaps."""
        return tuple(
            each for each in self.options.registry.snapshots() if each.module == self.executable.module
        )

    def release(self) -> None:
        """Waits for the devices and gives back all that it has there; another run takes it anew.

        Raises:
          StatusError: a device refused; what could be released is.
        """
        with self._lock, ExitStack() as stack:
            loaded, self._loaded = self._loaded, None
            placed, self._placed = list(self._placed.values()), {}
            # Last in, first out: wait, unload, then give up memory and modules.
            for each in placed:
                stack.callback(each.close)
            if loaded is not None:
                if placed:
                    stack.enter_context(placed[0].device.activate())
                stack.callback(loaded.close)
            for each in placed:
                stack.callback(each.synchronize)


class _Placed:
    """A program on one device.

    Attributes:
      device: the device.
      is_vmm: whether XLA's buffers can be remapped; None before the first run.
    """

    def __init__(
        self, loaded: GpuExecutable, device: Device, options: ProgramOptions, sink: EventCounts
    ) -> None:
        self.device = device
        self.is_vmm: bool | None = None
        self._guard, self._sink = options.guard, sink
        self._client_is_vmm = options.client_is_vmm
        # Held until the stream is done with them, whatever becomes of the recordings.
        self._kernels = _load_kernels(loaded.executable, device.stream.executor)
        self._allocator = AdoptingVmmAllocator((DeviceConfig(device.stream),))
        self._options: RunOptions | None = None
        allocations = loaded.program.allocations
        self._arguments = [DeviceAddress(0, allocations[index].size) for index in loaded.parameters]
        self._results = [DeviceAddress(0, allocations[index].size) for index in loaded.outputs]

    def run(self, loaded: GpuExecutable, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Enqueues one execution."""
        self._arguments = _updated(self._arguments, arguments)
        self._results = _updated(self._results, results)
        options = self._options
        if options is None:
            options = self._options = self._choose()
        loaded.execute(options, self._arguments, results=self._results)

    def _choose(self) -> RunOptions:
        """Only the first buffers that XLA brings tell how it allocates."""
        self.is_vmm = self._client_is_vmm and any(map(self._is_exact, (*self._results, *self._arguments)))
        stream = self.device.stream
        allocator = self._allocator if self.is_vmm else _WithoutRemapping(self._allocator)
        return RunOptions(allocator, stream, self._sink, self._guard)

    def _is_exact(self, address: DeviceAddress) -> bool:
        if address.is_null:
            return False
        found = retain_allocation(self.device.stream.executor.memory, address)
        if found is None:
            return False
        found.close()
        return True

    def synchronize(self) -> None:
        """Waits for the stream."""
        with self.device.activate():
            self.device.stream.synchronize()

    def close(self) -> None:
        """Gives up memory and kernels; the device is idle."""
        with self.device.activate():
            self._kernels = ()
            self._allocator.close()


def _load_kernels(executable: Executable, executor: se.StreamExecutor) -> tuple[se.Kernel, ...]:
    kernels = (each.info for thunk in executable.thunks for each in thunk.walk())
    return tuple(
        executor.load_kernel(info.cubin or (info.ptx or "").encode(), info.name)
        for info in kernels
        if isinstance(info, KernelInfo)
    )


def _updated(known: Sequence[DeviceAddress], addresses: Sequence[int]) -> list[DeviceAddress]:
    """Addresses as objects, the known ones where nothing has changed; of no bytes is null."""
    return [
        old if old.opaque == new else DeviceAddress(new, old.size) if old.size else NULL_ADDRESS
        for old, new in zip(known, addresses, strict=True)
    ]


class _WithoutRemapping:
    """``DeviceAddressAllocator`` that does not say it could remap."""

    def __init__(self, allocator: AdoptingVmmAllocator) -> None:
        self._allocator = allocator

    def allocate(self, device_ordinal: int, size: int) -> DeviceAddress:
        """See ``DeviceAddressAllocator``."""
        return self._allocator.allocate(device_ordinal, size)

    def deallocate(self, device_ordinal: int, address: DeviceAddress) -> None:
        """See ``DeviceAddressAllocator``."""
        self._allocator.deallocate(device_ordinal, address)
