"""The target GPU's side of a program that really runs on a CPU: addresses, profiles, command buffers.

Each call of an observed function is executed a second time by ``runtime.gpu_executable`` on a simulated
device, with the buffers that the call's arrays would have there. Invariants: the user's values come from the
CPU alone; what the simulation finds never changes a result or raises into the user's program; simulated
executions are done one after the other, each to its end, and no array's death waits for one.
"""

from __future__ import annotations

import functools
import gc
import logging
import math
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jax_cmdbuf.api.arrays import ArrayBuffers, Buffers
from jax_cmdbuf.api.gpu_plan import CompiledPrograms, GivenPlan, GpuPlan, make_plan
from jax_cmdbuf.api.signature import Arguments
from jax_cmdbuf.api.simulated_call import SimulatedCall, ordinals
from jax_cmdbuf.api.simulated_gpu import ForeignMemory, SimulatedGpu
from jax_cmdbuf.api.uninterrupted import UninterruptedWork
from jax_cmdbuf.errors import CmdbufError, StatusCode, StatusError
from jax_cmdbuf.events import Error, Event
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable, Injection
from jax_cmdbuf.runtime.guard import FIDELITY, Guard
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.replay import ReplayedExecution
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["Observed", "SimulatedProgram", "SimulatedRuntime"]

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
      key: tells it from the runtime's other programs.
    """

    observed: Observed
    plan: GpuPlan
    loaded: GpuExecutable
    executions: dict[int, deque[ReplayedExecution]] = field(default_factory=dict)
    count: int = 0
    key: Hashable = None


class SimulatedRuntime:
    """All simulated devices and programs of a session. Safe to call from any thread.

    Attributes:
      registry: the profiles.
    """

    def __init__(self, guard: Guard = FIDELITY) -> None:
        self.registry = ProfileRegistry()
        self._guard = guard
        # Held while a plan is made: each compilation takes a process of its own, and one at a time is enough.
        # Reentrant, since a finalizer may call a decorated function meanwhile.
        self._planning = threading.RLock()
        self._work = UninterruptedWork()
        self._arrays = ArrayBuffers()
        self._devices: dict[int, SimulatedGpu] = {}
        self._programs: dict[Hashable, SimulatedProgram | None] = {}
        self._compiled = CompiledPrograms()
        self._foreign: dict[int, ForeignMemory] = {}
        self._said: set[str] = set()

    # Programs

    def program(self, observed: Observed, arguments: Arguments) -> SimulatedProgram | None:
        """The program of this signature, made at first sight; None where none can be had."""
        key = (observed, arguments.key)
        # What calls from inside an execution is a finalizer: it cannot wait for a program to be loaded.
        if key not in self._programs and not self._work.is_asked_from_inside:
            with self._planning:
                if key not in self._programs:
                    self._load(key, observed, arguments)
        return self._programs.get(key)

    def _load(self, key: Hashable, observed: Observed, arguments: Arguments) -> None:
        try:
            plan = make_plan(arguments.traced, observed.target, observed.plan, self._compiled)
        except CmdbufError as error:
            self.cannot_simulate(observed, error)
            self._programs[key] = None
            return
        gc.collect()  # what only waits to be collected would be freed at some moment of the loop
        self._work.do(functools.partial(self._enter, key, observed, plan, arguments))

    def _enter(self, key: Hashable, observed: Observed, plan: GpuPlan, arguments: Arguments) -> None:
        if key in self._programs:
            return  # a finalizer's call was quicker
        try:
            if not any(self._programs.values()):
                self._take_in()
            paths = self._paths(plan, arguments)
            loaded = GpuExecutable(plan.executable, plan.conversion, observed.mode, self.registry, paths)
            self._programs[key] = SimulatedProgram(observed, plan, loaded, key=key)
        except CmdbufError as error:
            self.cannot_simulate(observed, error)
            self._programs[key] = None

    def cannot_simulate(self, observed: Observed, error: CmdbufError) -> None:
        """Says why a function's calls are not simulated, once."""
        text = f"{observed.name} runs, but is not simulated: {error}"
        if text not in self._said:
            self._said.add(text)
            _LOGGER.warning("%s", text)

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
        self._work.do(functools.partial(self._own_foreign, array))

    def _own_foreign(self, array: jax.Array) -> None:
        device = self._device(ordinals(array)[0])
        memory = ForeignMemory(device, array.nbytes)
        self._foreign[memory.address.opaque] = memory
        self._arrays.own(array, {device.ordinal: memory.address})

    def _take_in(self) -> None:
        """Gives a buffer to every array that is there before anything is simulated: it came first."""
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
          program: of ``arguments``' signature; one that was forgotten meanwhile is left alone.
          arguments: what it was called with.
          results: leaves of the result, or None when the user's own code in the program failed.
        """
        self._work.do(functools.partial(self._finish, program, arguments, results))

    def _finish(self, program: SimulatedProgram, arguments: Arguments, results: Sequence[Any] | None) -> None:
        if self._programs.get(program.key) is not program:
            return
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
        transient: list[DeviceAddress] = []
        outputs: tuple[DeviceAddress, ...] | None = None
        try:
            parameters = self._parameters(call, device, transient)
            if call.refused is not None:
                raise _refusal(call.refused, device)
            injection = Injection(failing=call.results is None)
            options = device.options(self._guard)
            outputs = call.program.loaded.execute(options, parameters, call.donated, injection).outputs
        except StatusError:
            pass  # an Error event says it; the user's program has its values from the CPU
        for address in transient:
            device.free(address)
        given = [self._arrays.of(call.kept[position]) or {} for position in sorted(call.donated)]
        addresses = [buffers[device.ordinal] for buffers in given if device.ordinal in buffers]
        call.returned(device.ordinal, outputs, addresses)
        self._remember(call.program, device)
        call.unclaimed(device.ordinal, device.free)

    def _parameters(
        self, call: SimulatedCall, device: SimulatedGpu, transient: list[DeviceAddress]
    ) -> list[DeviceAddress]:
        """Where the arguments lie on the device; ``transient`` gets those that do so for one call."""
        loaded = call.program.loaded
        sizes = [loaded.program.allocations[index].size for index in loaded.parameters]
        parameters: list[DeviceAddress] = []
        for leaf, size in zip(call.kept, sizes, strict=True):
            known = self._arrays.of(leaf)
            address = known.get(device.ordinal) if known is not None else None
            if address is None:
                try:
                    address = device.create(size, is_scalar=getattr(leaf, "ndim", 0) == 0)
                except StatusError as error:
                    device.log.emit(Error(error.code.name, error.message))
                    raise
                self._take(leaf, device.ordinal, address, known, transient)
            parameters.append(address)
        return parameters

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
        self._work.do(self._close)

    def _close(self) -> None:
        for program in self.programs:
            program.loaded.close()
        self._programs.clear()
        self._compiled.clear()
        self._said.clear()
        self.registry.close()
        for memory in self._foreign.values():
            memory.close()
        self._foreign.clear()
        for device in self._devices.values():
            device.close()
        self._devices.clear()
        self._arrays = ArrayBuffers()


def _refusal(argument: int, device: SimulatedGpu) -> StatusError:
    """PJRT's error for a donated array whose memory is referred to from outside, told to the device's log."""
    code = StatusCode.INVALID_ARGUMENT
    message = (
        f"Invalid buffer passed to Execute() as argument {argument} to replica 0: {code.name}: Donation "
        "requested for buffer with external reference"
    )
    device.log.emit(Error(code.name, message))
    return StatusError(code, message)


def _shard_bytes(array: jax.Array) -> int:
    """Bytes of one device's part of an array."""
    elements = math.prod(array.sharding.shard_shape(array.shape))
    return elements * array.dtype.itemsize
