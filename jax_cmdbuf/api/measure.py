"""Measuring what things cost on the machine at hand, in under a minute.

Every figure is a median of host time between two looks at a clock. The clock is a parameter: on a simulated
device it is the simulated driver's, and measuring gives back the costs that were put in. Invariant: all that
is made is released.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import jax

from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import VirtualMemory

__all__ = [
    "Clock",
    "MeasurableDevice",
    "measure_command_buffers",
    "measure_copies",
    "measure_dispatch",
    "measure_memory",
    "wall_clock",
]

# Microseconds.
Clock = Callable[[], float]

REPEATS = 31
BATCH = 16
NODES = 64
_CALLS = 10
_GIBIBYTE = 1 << 30
_LARGE_COPY = 256 << 20

# A kernel of one pointer that does nothing, so that launches cost what launching costs.
_PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry nothing(.param .u64 buffer)
{
  ret;
}
\0"""


class MeasurableDevice(se.StreamExecutor, Protocol):
    """A device whose driver calls can be measured one by one."""

    @property
    def memory(self) -> VirtualMemory:
        """The driver's calls."""


class _Stopwatch:
    """Times by name; the median of each is what counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    @contextmanager
    def time(self, name: str, items: int = 1) -> Iterator[None]:
        begin = self._clock()
        yield
        self._times.setdefault(name, []).append((self._clock() - begin) / items)

    def medians(self) -> dict[str, float]:
        return {name: statistics.median(times) for name, times in self._times.items()}


def measure_memory(device: MeasurableDevice, clock: Clock, repeats: int = REPEATS) -> dict[str, float]:
    """What the driver's calls for virtual memory cost, one by one and batched.

    Raises:
      DriverError: the driver refused a call.
    """
    memory, size, watch = device.memory, device.granularity, _Stopwatch(clock)
    for _ in range(repeats):
        with ExitStack() as undo:
            with watch.time("cuMemAddressReserve"):
                address = memory.reserve_address(size)
            undo.callback(memory.free_address, address, size)
            with watch.time("cuMemCreate"):
                handle = memory.create_memory(size)
            undo.callback(memory.release_memory, handle)
            with watch.time("cuMemMap"):
                memory.map(address, size, handle)
            undo.callback(memory.unmap, address, size)
            with watch.time("cuMemSetAccess"):
                memory.set_access(address, size)
            undo.pop_all()
        with watch.time("cuMemUnmap"):
            memory.unmap(address, size)
        with watch.time("cuMemRelease"):
            memory.release_memory(handle)
        with watch.time("cuMemAddressFree"):
            memory.free_address(address, size)
    _measure_batches(memory, size, watch, max(repeats // 4, 1))
    return watch.medians()


def _measure_batches(memory: VirtualMemory, size: int, watch: _Stopwatch, repeats: int) -> None:
    with ExitStack() as stack:
        address = memory.reserve_address(BATCH * size)
        stack.callback(memory.free_address, address, BATCH * size)
        handles = []
        for _ in range(BATCH):
            handles.append(memory.create_memory(size))
            stack.callback(memory.release_memory, handles[-1])
        for _ in range(repeats):
            with ExitStack() as undo:
                for position, handle in enumerate(handles):
                    memory.map(address + position * size, size, handle)
                    undo.callback(memory.unmap, address + position * size, size)
                with watch.time("cuMemSetAccess.batched", BATCH):
                    memory.set_access(address, BATCH * size)
                undo.pop_all()
            with watch.time("cuMemUnmap.batched", BATCH):
                memory.unmap(address, BATCH * size)


class _Graphs:
    """Chains of one kind of node on two buffers, to be created and updated."""

    def __init__(self, device: se.StreamExecutor, buffers: tuple[DeviceAddress, DeviceAddress]) -> None:
        self._device = device
        self._buffers = buffers
        self._kernel = device.load_kernel(_PTX, "nothing")
        self._nested = self.chain("memset", 1)[0]

    def chain(self, kind: str, count: int) -> tuple[se.CommandBuffer, list[se.Command]]:
        buffer = self._device.create_command_buffer()
        commands: list[se.Command] = []
        for _ in range(count):
            commands.append(self._create(buffer, kind, commands[-1:]))
        return buffer, commands

    def _create(self, buffer: se.CommandBuffer, kind: str, after: list[se.Command]) -> se.Command:
        here, there = self._buffers
        match kind:
            case "kernel":
                return buffer.create_launch(self._kernel, se.LaunchDimensions(), [here], after)
            case "memcpy":
                return buffer.create_memcpy(there, here, after)
            case "memset":
                return buffer.create_memset(here, b"\0", after)
        return buffer.create_nested(self.finished_nested(), after)

    def finished_nested(self) -> se.CommandBuffer:
        if self._nested.state is se.CommandBufferState.CREATE:
            self._nested.finalize()
        return self._nested

    def update(self, buffer: se.CommandBuffer, kind: str, command: se.Command, turn: int) -> None:
        here, there = self._buffers if turn % 2 else self._buffers[::-1]
        match kind:
            case "kernel":
                buffer.update_launch(command, self._kernel, se.LaunchDimensions(), [here])
            case "memcpy":
                buffer.update_memcpy(command, there, here)
            case "memset":
                buffer.update_memset(command, here, b"\0")
            case _:
                buffer.update_nested(command, self.finished_nested())

    def close(self) -> None:
        self._nested.close()


def measure_command_buffers(
    device: se.StreamExecutor,
    stream: se.Stream,
    buffers: tuple[DeviceAddress, DeviceAddress],
    clock: Clock,
    repeats: int = REPEATS,
) -> dict[str, float]:
    """What instantiating, launching and updating command buffers costs.

    Args:
      device, stream: where.
      buffers: two buffers of the device of one size, which are overwritten.
      clock: in microseconds.
      repeats: how often each figure is measured.

    Raises:
      DriverError: the driver refused a call.
    """
    watch = _Stopwatch(clock)
    graphs = _Graphs(device, buffers)
    with ExitStack() as stack:
        stack.callback(graphs.close)
        for kind in ("kernel", "memcpy", "memset", "nested"):
            buffer, commands = graphs.chain(kind, NODES)
            stack.callback(buffer.close)
            buffer.finalize()
            for turn in range(repeats):
                buffer.update()
                with watch.time(f"update.{kind}", NODES):
                    for command in commands:
                        graphs.update(buffer, kind, command, turn)
                buffer.finalize()
                buffer.submit(stream)
            stream.synchronize()
        for count in (1, NODES):
            for _ in range(repeats):
                _measure_launch(graphs, count, stream, watch)
    found = watch.medians()
    for what in ("instantiate", "launch"):
        one, many = found.pop(f"{what} 1"), found.pop(f"{what} {NODES}")
        found |= {what: one, f"{what}.node": max(many - one, 0.0) / (NODES - 1)}
    return found


def _measure_launch(graphs: _Graphs, count: int, stream: se.Stream, watch: _Stopwatch) -> None:
    buffer, _ = graphs.chain("kernel", count)
    with watch.time(f"instantiate {count}"):
        buffer.finalize()
    buffer.submit(stream)
    stream.synchronize()
    with watch.time(f"launch {count}"):
        buffer.submit(stream)
    stream.synchronize()
    buffer.close()


def measure_copies(
    stream: se.Stream,
    buffers: tuple[DeviceAddress, DeviceAddress],
    clock: Clock,
    repeats: int = REPEATS,
) -> dict[str, float]:
    """What copies cost to enqueue, and how long the device takes for a large one.

    Args:
      stream: where.
      buffers: two buffers of the device of at least 4 KiB, 256 MiB for a true bandwidth; overwritten.
      clock: in microseconds.
      repeats: how often each figure is measured.

    Raises:
      DriverError: the driver refused a call.
    """
    watch = _Stopwatch(clock)
    here, there = (buffer.slice(0, 4096) for buffer in buffers)
    content = ctypes.create_string_buffer(4096)
    for seqno in range(1, repeats + 1):
        with watch.time("copy.d2d"):
            stream.memcpy_d2d(there, here)
        with watch.time("copy.h2d"):
            stream.memcpy_h2d(there, ctypes.addressof(content))
        with watch.time("cuStreamWriteValue64"):
            stream.enqueue_seqno(seqno)
        stream.synchronize()
    large = min(*(buffer.size for buffer in buffers), _LARGE_COPY)
    here, there = (buffer.slice(0, large) for buffer in buffers)
    for _ in range(max(repeats // 6, 1)):
        with watch.time("copy.d2d.gibibyte"):
            stream.memcpy_d2d(there, here)
            stream.synchronize()
    found = watch.medians()
    found["copy.d2d.gibibyte"] *= _GIBIBYTE / large
    return found


def wall_clock() -> float:
    """The machine's own clock, in microseconds."""
    return time.perf_counter_ns() / 1000


def measure_dispatch(clock: Clock, repeats: int = REPEATS) -> dict[str, float]:
    """What a call of a jitted function costs its caller, by the number of arguments and results."""
    base = _call_cost(1, 1, clock, repeats)
    more = BATCH - 1
    return {
        "dispatch.call": base,
        "dispatch.argument": max(_call_cost(BATCH, 1, clock, repeats) - base, 0.0) / more,
        "dispatch.result": max(_call_cost(1, BATCH, clock, repeats) - base, 0.0) / more,
    }


def _call_cost(arguments: int, results: int, clock: Clock, repeats: int) -> float:
    jitted = jax.jit(lambda *xs: [xs[0] + number for number in range(results)], keep_unused=True)
    values = [jax.numpy.full(8, number, jax.numpy.float32) for number in range(arguments)]
    jax.block_until_ready(jitted(*values))  # type: ignore[no-untyped-call]
    watch = _Stopwatch(clock)
    for _ in range(repeats):
        with watch.time("call", _CALLS):
            for _ in range(_CALLS):
                result = jitted(*values)
        jax.block_until_ready(result)  # type: ignore[no-untyped-call]
    return watch.medians()["call"]
