"""Counting what a loop around a program asks of the device, by simulating it.

The program is executed by the machinery on a simulated device, with its caller's buffers moving as assumed,
until nothing changes any more. Invariant: all that is allocated is given back.
"""

from __future__ import annotations

from collections import Counter

from jax_cmdbuf.api.session import simulated_device
from jax_cmdbuf.events import EventLog, ExecuteCommandBuffer, UpdateDone
from jax_cmdbuf.executable.conversion import Conversion
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.forecast import CallerHabits, StepCounts
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.policy import PROFILE_STEPS
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["count_step"]

# Executions that are looked at, after as many again in which buffers find their places.
_LOOKED_AT = 4
# Driver calls for virtual memory, all of which a calibration knows.
_VMM_CALLS = (
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuStreamWriteValue64",
)


def count_step(
    executable: Executable,
    conversion: Conversion,
    mode: CommandBufferUpdateMode,
    habits: CallerHabits,
) -> StepCounts:
    """Simulates a loop and counts a step of it.

    Args:
      executable: the program.
      conversion: its command buffers.
      mode: the update mode.
      habits: what its caller does.

    Raises:
      StatusError: XLA would fail the execution.
    """
    device = simulated_device()
    registry, log = ProfileRegistry(), EventLog()
    loaded = GpuExecutable(executable, conversion, mode, registry)
    with DeviceAddressVmmAllocator([DeviceConfig(device.stream)]) as allocator:
        caller = _Caller(loaded, allocator, habits)
        options = RunOptions(allocator, device.stream, log)
        for _ in range(PROFILE_STEPS + _LOOKED_AT):
            caller.call(options)
        log.drain()
        before = Counter(device.executor.driver.calls)
        for _ in range(_LOOKED_AT):
            caller.call(options)
        calls = Counter(device.executor.driver.calls)
        calls.subtract(before)
        events = log.drain()
        caller.close()
        loaded.close()
        registry.close()
    done = [event for event in events if isinstance(event, UpdateDone)]
    launches = sum(isinstance(event, ExecuteCommandBuffer) for event in events) / _LOOKED_AT
    return StepCounts(
        mode,
        updated=sum(event.commands - event.skipped for event in done) / _LOOKED_AT,
        commands=sum(len(buffer.commands) for buffer in conversion.command_buffers),
        buffers=len(conversion.command_buffers),
        launches=launches,
        plain=calls["cuGraphLaunch"] / _LOOKED_AT - launches,
        driver_calls={name: calls[name] / _LOOKED_AT for name in _VMM_CALLS if calls[name]},
        arguments=len(loaded.parameters),
        results=len(loaded.outputs),
    )


class _Caller:
    """A loop around a program, as far as the allocator sees it."""

    def __init__(
        self, loaded: GpuExecutable, allocator: DeviceAddressVmmAllocator, habits: CallerHabits
    ) -> None:
        self._loaded = loaded
        self._allocator = allocator
        self._habits = habits
        allocations = loaded.program.allocations
        self._sizes = [allocations[index].size for index in loaded.parameters]
        self._arguments = [allocator.allocate(0, size) for size in self._sizes]
        # Result leaf -> the donated parameter whose memory it is.
        self._carried = {
            number: loaded.parameters.index(index)
            for number, index in enumerate(loaded.outputs)
            if index in loaded.parameters
        }
        self._results: list[DeviceAddress] = []
        self._calls = 0
        self._others: dict[int, DeviceAddress] = {}

    def call(self, options: RunOptions) -> None:
        habits = self._habits
        moving = habits.moving | (habits.moving_later if self._calls >= PROFILE_STEPS else frozenset())
        self._calls += 1
        for leaf in moving - frozenset(self._carried.values()):
            if habits.takes_turns and leaf in self._others:
                self._arguments[leaf], self._others[leaf] = self._others[leaf], self._arguments[leaf]
                continue
            fresh = self._allocator.allocate(0, self._sizes[leaf])
            if habits.takes_turns:
                self._others[leaf] = self._arguments[leaf]
            else:
                self._free(self._arguments[leaf])
            self._arguments[leaf] = fresh
        if not habits.keeps_results:
            self._drop_results()
        outputs = self._loaded.execute(options, self._arguments).outputs
        self._drop_results()
        for number, address in enumerate(outputs):
            if number in self._carried:
                self._arguments[self._carried[number]] = address
            else:
                self._results.append(address)

    def _drop_results(self) -> None:
        while self._results:
            self._free(self._results.pop(0))

    def _free(self, address: DeviceAddress) -> None:
        if not address.is_null:
            self._allocator.deallocate(0, address)

    def close(self) -> None:
        self._drop_results()
        for address in (*self._arguments, *self._others.values()):
            self._free(address)
