"""What a step of a program will cost the host under each update mode, before it has run anywhere.

The program is executed by the machinery on a simulated device, with its caller's buffers moving as assumed,
until nothing changes any more; what the driver was asked for in a step, times what a calibration says each
costs, is the forecast. Invariant: costs come from the calibration, counts from the simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from jax_cmdbuf.api.session import simulated_device
from jax_cmdbuf.events import Event, EventLog, ExecuteCommandBuffer, UpdateDone
from jax_cmdbuf.executable.conversion import Conversion
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.calibration import Calibration
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.policy import PROFILE_STEPS
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["CallerHabits", "Forecast", "forecast"]

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


@dataclass(frozen=True, slots=True)
class CallerHabits:
    """What the caller does with its buffers between two calls.

    Attributes:
      moving: parameter leaves that are another array in each call, made before the last one is dropped; the
        others are the same array, or, where they are donated, the result that took their place.
      moving_later: leaves that begin to do so only when SKIP_PROFILED has ended its profile.
      keeps_results: a call's results live until the next call has returned, as in ``out = f(x)`` in a loop;
        otherwise they are dropped before it.
    """

    moving: frozenset[int] = frozenset()
    moving_later: frozenset[int] = frozenset()
    keeps_results: bool = True


@dataclass(frozen=True, slots=True)
class Forecast:
    """A step in the steady state.

    Attributes:
      mode: the update mode.
      updated: commands recorded again.
      commands: commands in command buffers.
      launches: command buffers launched.
      plain: thunks launched one by one.
      driver_calls: calls for virtual memory, by the driver's names.
      microseconds: host time by what it is for: "update", "remap", "launch", "dispatch".
    """

    mode: CommandBufferUpdateMode
    updated: float
    commands: int
    launches: float
    plain: float
    driver_calls: Mapping[str, float] = field(repr=False)
    microseconds: Mapping[str, float]

    @property
    def total(self) -> float:
        """Host microseconds of a step."""
        return sum(self.microseconds.values())

    @property
    def address_changes(self) -> float:
        """Host microseconds of a step that are due to address changes: what the mode is there to save."""
        return self.microseconds["update"] + self.microseconds["remap"]


def forecast(
    executable: Executable,
    conversion: Conversion,
    mode: CommandBufferUpdateMode,
    habits: CallerHabits,
    calibration: Calibration,
) -> Forecast:
    """Forecasts one mode.

    Args:
      executable: the program.
      conversion: its command buffers.
      mode: the update mode.
      habits: what its caller does.
      calibration: what things cost.

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
    return _price(loaded, conversion, calls, events, calibration)


def _price(
    loaded: GpuExecutable,
    conversion: Conversion,
    calls: Counter[str],
    events: tuple[Event, ...],
    cost: Calibration,
) -> Forecast:
    """The executions that were looked at, per execution, at the calibration's prices."""
    done = [event for event in events if isinstance(event, UpdateDone)]
    updated = sum(event.commands - event.skipped for event in done) / _LOOKED_AT
    launches = sum(isinstance(event, ExecuteCommandBuffer) for event in events) / _LOOKED_AT
    plain = calls["cuGraphLaunch"] / _LOOKED_AT - launches
    buffers = conversion.command_buffers
    commands = sum(len(buffer.commands) for buffer in buffers)
    vmm = {name: calls[name] / _LOOKED_AT for name in _VMM_CALLS if calls[name]}
    microseconds = {
        "update": updated * cost["native.update"],
        "remap": sum(count * cost[name] for name, count in vmm.items()),
        "launch": (launches + plain) * cost["launch"] + (commands - len(buffers)) * cost["launch.node"],
        "dispatch": cost["dispatch.call"]
        + max(len(loaded.parameters) - 1, 0) * cost["dispatch.argument"]
        + max(len(loaded.outputs) - 1, 0) * cost["dispatch.result"],
    }
    mode = loaded.program.classification.mode
    return Forecast(mode, updated, commands, launches, plain, vmm, microseconds)


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

    def call(self, options: RunOptions) -> None:
        habits = self._habits
        moving = habits.moving | (habits.moving_later if self._calls >= PROFILE_STEPS else frozenset())
        self._calls += 1
        for leaf in moving - frozenset(self._carried.values()):
            fresh = self._allocator.allocate(0, self._sizes[leaf])
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
        for address in self._arguments:
            self._free(address)
