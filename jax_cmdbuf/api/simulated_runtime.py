"""The target GPU's side of a program that really runs on a CPU: addresses, profiles, command buffers.

Each call of an observed function is executed a second time by ``runtime.gpu_executable`` on a simulated
device, with the buffers that the call's arrays would have there. Invariants: the user's values come from the
CPU alone; what the simulation finds never changes a result or raises into the user's program; one lock
serialises simulated executions, and no array's death takes it.
"""

from __future__ import annotations

import gc
import logging
import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jax_cmdbuf.api.arrays import ArrayBuffers, Buffers
from jax_cmdbuf.api.gpu_plan import GivenPlan, GpuPlan, make_plan
from jax_cmdbuf.api.signature import Arguments
from jax_cmdbuf.api.simulated_gpu import ForeignMemory, SimulatedGpu
from jax_cmdbuf.errors import CmdbufError, StatusCode, StatusError
from jax_cmdbuf.events import Error, Event
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable, Injection
from jax_cmdbuf.runtime.guard import FIDELITY, Guard
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.replay import ReplayedExecution
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["Observed", "SimulatedCall", "SimulatedProgram", "SimulatedRuntime"]

_LOGGER = logging.getLogger("jax_cmdbuf")
_MOST_EXECUTIONS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What a decorated function asks of the runtime; equal to itself only.

    Attributes:
      name: of the function, for messages.
      mode: the update mode.
      target: name or file of the GPU; None: ``h200``.
      plan: an executable to simulate instead of one compiled for the target.
    """

    name: str
    mode: CommandBufferUpdateMode
    target: str | None = None
    plan: GivenPlan | None = field(default=None, repr=False)


@dataclass
class SimulatedProgram:
    """One signature of a function.

    Attributes:
      observed: whose signature.
      plan: what runs.
      loaded: the same, loaded.
      executions: device ordinal -> the last executions there, oldest first.
      count: calls simulated.
    """

    observed: Observed
    plan: GpuPlan
    loaded: GpuExecutable
    executions: dict[int, deque[ReplayedExecution]] = field(default_factory=dict)
    count: int = 0


class SimulatedRuntime:
    """All simulated devices and programs of a session. Safe to call from any thread.

    Attributes:
      registry: the profiles.
    """

    def __init__(self, guard: Guard = FIDELITY) -> None:
        self.registry = ProfileRegistry()
        self._guard = guard
        self._lock = threading.Lock()
        self._arrays = ArrayBuffers()
        self._devices: dict[int, SimulatedGpu] = {}
        self._programs: dict[Any, SimulatedProgram | None] = {}
        self._foreign: dict[int, ForeignMemory] = {}

    # Programs

    def program(self, observed: Observed, arguments: Arguments) -> SimulatedProgram | None:
        """The program of this signature, made at first sight; None where none can be had."""
        key = (observed, arguments.key)
        if key not in self._programs:
            with self._lock:
                if key not in self._programs:
                    self._programs[key] = self._load(observed, arguments)
        return self._programs[key]

    def _load(self, observed: Observed, arguments: Arguments) -> SimulatedProgram | None:
        try:
            plan = make_plan(arguments.traced, observed.target, observed.plan)
            if not self._programs:
                self._take_in()
            paths = self._paths(plan, arguments)
            loaded = GpuExecutable(plan.executable, plan.conversion, observed.mode, self.registry, paths)
            return SimulatedProgram(observed, plan, loaded)
        except CmdbufError as error:
            _LOGGER.warning("%s runs, but is not simulated: %s", observed.name, error)
            return None

    def _paths(self, plan: GpuPlan, arguments: Arguments) -> dict[int, str]:
        entries = [each for each in plan.executable.allocations if each.is_entry_computation_parameter]
        entries.sort(key=lambda each: (each.parameter_number or 0, each.parameter_shape_index))
        named, _ = jax.tree_util.tree_flatten_with_path(arguments.traced.out_info)
        # A result in an argument's memory goes by the argument's name; a given plan may have other results.
        paths = {
            index: f"result{jax.tree_util.keystr(path)}"
            for index, (path, _) in zip(plan.executable.result_allocations, named, strict=False)
        }
        return paths | {
            allocation.index: arguments.paths[position]
            for allocation, position in zip(entries, plan.kept, strict=True)
        }

    @property
    def programs(self) -> tuple[SimulatedProgram, ...]:
        """Every signature that was simulated."""
        return tuple(program for program in list(self._programs.values()) if program is not None)

    def snapshots(self) -> tuple[RemappingSnapshot, ...]:
        """All profiles as they stand now."""
        return self.registry.snapshots()

    # Executions

    def declare_foreign(self, array: jax.Array) -> None:
        """Says that an array lies in memory that XLA's allocator does not own, as one imported by DLPack."""
        with self._lock:
            device = self._device(_ordinals(array)[0])
            memory = ForeignMemory(device, array.nbytes)
            self._foreign[memory.address.opaque] = memory
            self._arrays.own(array, {device.ordinal: memory.address})

    def _take_in(self) -> None:
        """Gives a buffer to every array that is there before anything is simulated: it came first."""
        gc.collect()  # what only waits to be collected would be freed at some moment of the loop
        for array in jax.live_arrays():  # type: ignore[no-untyped-call]
            if array.is_deleted() or self._arrays.of(array) is not None:
                continue
            buffers = {}
            for shard in array.addressable_shards:
                device = self._device(shard.device.id)
                buffers[device.ordinal] = device.allocate(_shard_bytes(array))
            self._arrays.own(array, buffers)

    def finish(self, program: SimulatedProgram, arguments: Arguments, results: Sequence[Any] | None) -> None:
        """Simulates a call that has returned on the CPU.

        Args:
          program: of ``arguments``' signature.
          arguments: what it was called with.
          results: leaves of the result, or None when the user's own code in the program failed.
        """
        with self._lock:
            call = SimulatedCall(program, arguments, results)
            self._free_what_died(call.donated_ids)
            for ordinal in call.ordinals:
                self._execute(call, self._device(ordinal))
            call.hand_out(self._arrays)
            program.count += 1

    def _device(self, ordinal: int) -> SimulatedGpu:
        if ordinal not in self._devices:
            self._devices[ordinal] = SimulatedGpu(ordinal)
        return self._devices[ordinal]

    def _free_what_died(self, donated: frozenset[int]) -> None:
        for buffers in self._arrays.collect(keep=donated):
            self._free(buffers)

    def _free(self, buffers: Buffers) -> None:
        for ordinal, address in buffers.items():
            memory = self._foreign.pop(address.opaque, None)
            if memory is None:
                self._device(ordinal).free(address)
            else:
                memory.close()

    def _execute(self, call: SimulatedCall, device: SimulatedGpu) -> None:
        program, loaded = call.program, call.program.loaded
        sizes = [loaded.program.allocations[index].size for index in loaded.parameters]
        parameters: list[DeviceAddress] = []
        transient: list[DeviceAddress] = []
        for leaf, size in zip(call.kept, sizes, strict=True):
            known = self._arrays.of(leaf)
            address = known.get(device.ordinal) if known is not None else None
            if address is None:
                address = device.create(size, is_scalar=getattr(leaf, "ndim", 0) == 0)
                self._take(leaf, device.ordinal, address, known, transient)
            parameters.append(address)
        outputs: tuple[DeviceAddress, ...] | None = None
        try:
            if call.refused is not None:
                raise _refusal(call.refused, device)
            injection = Injection(failing=call.results is None)
            result = loaded.execute(device.options(self._guard), parameters, call.donated, injection)
            outputs = result.outputs
        except StatusError:
            pass  # an Error event says it; the user's program has its values from the CPU
        for address in transient:
            device.free(address)
        call.returned(device.ordinal, outputs, [parameters[position] for position in sorted(call.donated)])
        self._remember(program, device)
        call.unclaimed(device.ordinal, device.free)

    def _take(
        self,
        leaf: Any,
        ordinal: int,
        address: DeviceAddress,
        known: Buffers | None,
        transient: list[DeviceAddress],
    ) -> None:
        """A buffer for an argument that has none: an array keeps it, a host value has it for one call."""
        if isinstance(leaf, jax.Array):
            self._arrays.own(leaf, {**(known or {}), ordinal: address})
        else:
            transient.append(address)

    def _remember(self, program: SimulatedProgram, device: SimulatedGpu) -> None:
        events: tuple[Event, ...] = device.log.drain()
        snapshot = self.registry.snapshot_of(program.loaded, device.device.stream.executor)
        executions = program.executions.setdefault(device.ordinal, deque(maxlen=_MOST_EXECUTIONS))
        executions.append(ReplayedExecution(events, snapshot, device.owning))
        device.owning = None

    def close(self) -> None:
        """Unloads every program and forgets every buffer."""
        with self._lock:
            for program in self.programs:
                program.loaded.close()
            self._programs.clear()
            self.registry.close()
            for memory in self._foreign.values():
                memory.close()
            self._foreign.clear()
            for device in self._devices.values():
                device.close()
            self._devices.clear()
            self._arrays = ArrayBuffers()


class SimulatedCall:
    """One call: which devices, which of its arguments were donated, and who gets its outputs."""

    def __init__(
        self, program: SimulatedProgram, arguments: Arguments, results: Sequence[Any] | None
    ) -> None:
        self.program = program
        self.results = results
        self.kept = [arguments.leaves[position] for position in program.plan.kept]
        # A call that failed had its donated arguments consumed all the same.
        self.donated = frozenset(
            position
            for position, leaf in enumerate(self.kept)
            if isinstance(leaf, jax.Array) and leaf.is_deleted()
        )
        self.donated_ids = frozenset(id(self.kept[position]) for position in self.donated)
        self.refused = self._refused(arguments) if results is not None else None
        arrays = [leaf for leaf in (*self.kept, *(results or ())) if isinstance(leaf, jax.Array)]
        found = {ordinal for array in arrays for ordinal in _ordinals(array)}
        self.ordinals = sorted(found) or [0]
        self._outputs: dict[int, tuple[DeviceAddress, ...] | None] = {}
        self._given: dict[int, list[DeviceAddress]] = {}

    def _refused(self, arguments: Arguments) -> int | None:
        """The first argument that PJRT would refuse, because something outside JAX refers to its memory.

        The CPU copies what it cannot take over, and leaves the array undeleted; a GPU's PJRT raises.
        """
        loaded, kept = self.program.loaded, self.program.plan.kept
        for position, (leaf, index) in enumerate(zip(self.kept, loaded.parameters, strict=True)):
            allocation = loaded.program.allocations[index]
            aliased = allocation.maybe_live_out or allocation.is_parameter_aliased_with_output
            if arguments.donated[kept[position]] and aliased and position not in self.donated:
                return position if isinstance(leaf, jax.Array) else None
        return None

    def returned(
        self, ordinal: int, outputs: tuple[DeviceAddress, ...] | None, given: list[DeviceAddress]
    ) -> None:
        """One device's outcome: result buffers, or None; and the buffers of the donated arguments."""
        self._outputs[ordinal] = outputs
        self._given[ordinal] = given

    def unclaimed(self, ordinal: int, free: Any) -> None:
        """Frees donated buffers that did not become results, and results that no array stands for."""
        outputs = self._outputs[ordinal]
        for address in self._given[ordinal]:
            if address not in (outputs or ()):
                free(address)
        if outputs is not None and len(outputs) != len(self.results or ()):
            for address in outputs:
                free(address)
            self._outputs[ordinal] = None

    def hand_out(self, arrays: ArrayBuffers) -> None:
        """Donated arguments lose their buffers; each result array gets its own."""
        for position in self.donated:
            arrays.disown(self.kept[position])
        for number, result in enumerate(self.results or ()):
            buffers = {
                ordinal: outputs[number]
                for ordinal, outputs in self._outputs.items()
                if outputs is not None and not outputs[number].is_null
            }
            if buffers and isinstance(result, jax.Array):
                arrays.own(result, buffers)


def _refusal(argument: int, device: SimulatedGpu) -> StatusError:
    """PJRT's error for a donated array whose memory is referred to from outside, told to the device's log."""
    code = StatusCode.INVALID_ARGUMENT
    message = (
        f"Invalid buffer passed to Execute() as argument {argument} to replica 0: {code.name}: Donation "
        "requested for buffer with external reference"
    )
    device.log.emit(Error(code.name, message))
    return StatusError(code, message)


def _ordinals(array: Any) -> list[int]:
    """Numbers of the addressable devices that an array lies on."""
    try:
        return sorted(device.id for device in array.sharding.addressable_devices)
    except (AttributeError, RuntimeError):
        return [0]


def _shard_bytes(array: jax.Array) -> int:
    """Bytes of one device's part of an array."""
    elements = math.prod(array.sharding.shard_shape(array.shape))
    return elements * array.dtype.itemsize
