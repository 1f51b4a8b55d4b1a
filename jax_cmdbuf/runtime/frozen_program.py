"""A whole program recorded on addresses that never change: a run allocates, checks and updates nothing.

Ours, not XLA's: the thunks of an executable become one command buffer, whatever XLA would have grouped.
A result that is the next run's parameter is carried without a copy: where XLA did not make them one buffer,
there are two recordings between which parameter and result change places. Invariant: after any number of
launches, ``parameters`` and ``results`` say where the next launch reads and where the last one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.events import NO_SINK
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.recordable import unsupported_thunks
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations
from jax_cmdbuf.runtime.commands import command_list
from jax_cmdbuf.runtime.constants import LoadedConstants
from jax_cmdbuf.runtime.recording import Recording
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress, round_up

__all__ = ["FrozenProgram"]

# Bytes to which XLA aligns what it allocates (``kXlaAllocatedBufferAlignBytes``).
_ALIGNMENT = 256
_NULL = DeviceAddress(0, 0)
# A block of runs is launched as one; more of them save less and take longer to instantiate.
_BLOCK_RUNS = 32
_BLOCK_NODES = 4096


class FrozenProgram:
    """One program on one device, with memory of its own for everything it touches.

    Not thread-safe; launches go to one stream.
    """

    def __init__(self, executable: Executable, stream: se.Stream, carried: Mapping[int, int]) -> None:
        """Allocates and records.

        Args:
          executable: the program.
          stream: where launches go; stays its owner's.
          carried: result leaf -> the parameter leaf that takes its value in the next run.

        Raises:
          StatusError: UNIMPLEMENTED when a thunk cannot be recorded, INVALID_ARGUMENT when XLA gave a carried
            result the memory of something else; ``DriverError`` when the device refuses.
        """
        if unsupported := unsupported_thunks(executable):
            raise StatusError(StatusCode.UNIMPLEMENTED, str(unsupported[0]))
        self._executable = executable
        self._stream = stream
        self._turn = 0
        self._block: se.CommandBuffer | None = None
        self._partners = _partners(executable, carried)
        with ExitStack() as undo:
            constants = LoadedConstants(executable)
            undo.callback(constants.close)
            table = _allocate(executable, stream, self._partners, undo)
            table |= constants.on(stream)
            self._tables = [
                BufferAllocations(table.get(each.index, _NULL) for each in executable.allocations)
            ]
            if self._partners:
                here = self._tables[0]
                self._tables.append(
                    here.with_addresses({one: here[other] for one, other in self._partners.items()})
                )
            commands = command_list(executable.thunks)
            self._recordings = []
            for addresses in self._tables if commands.commands else ():
                recording = Recording(commands, stream.executor)
                undo.callback(recording.close)
                recording.create(addresses, NO_SINK)
                self._recordings.append(recording)
            self._release = undo.pop_all()

    @property
    def parameters(self) -> tuple[DeviceAddress, ...]:
        """Where the next launch reads each parameter leaf; null for one without bytes."""
        table = self._tables[self._turn]
        return tuple(table[index] for index in self._executable.parameter_allocations)

    @property
    def results(self) -> tuple[DeviceAddress, ...]:
        """Where the last launch wrote each result leaf; valid once something was launched."""
        table = self._tables[self._turn - 1]
        return tuple(table[index] for index in self._executable.result_allocations)

    def launch(self) -> None:
        """Enqueues one run."""
        if self._recordings:
            self._recordings[self._turn].buffer.submit(self._stream)
        if self._partners:
            self._turn ^= 1

    def launch_many(self, count: int) -> None:
        """Enqueues ``count`` runs one after the other, many of them as one command buffer."""
        block = self._block_length()
        if self._turn and count:
            self.launch()
            count -= 1
        while self._recordings and count >= block > 1:
            if self._block is None:
                self._block = self._record_block(block)
            self._block.submit(self._stream)
            count -= block
        for _ in range(count):
            self.launch()

    def _block_length(self) -> int:
        """Runs in a block: an even number, so that every block begins on the same addresses."""
        nodes = max(len(self._recordings[0].commands), 1) if self._recordings else 1
        return min(_BLOCK_RUNS, _BLOCK_NODES // nodes) // 2 * 2

    def _record_block(self, runs: int) -> se.CommandBuffer:
        buffer = self._stream.executor.create_command_buffer()
        self._release.callback(buffer.close)
        after: tuple[se.Command, ...] = ()
        for run in range(runs):
            recording = self._recordings[run % len(self._recordings)]
            after = (buffer.create_nested(recording.buffer, after),)
        buffer.finalize()
        return buffer

    def close(self) -> None:
        """Waits for the stream and releases everything; more calls do nothing."""
        self._stream.synchronize()
        self._recordings.clear()
        self._block = None
        self._release.close()


def _partners(executable: Executable, carried: Mapping[int, int]) -> dict[int, int]:
    """Allocations that change places after each run, both ways; those of one buffer need not."""
    partners: dict[int, int] = {}
    for result, parameter in carried.items():
        source = executable.result_allocations[result]
        target = executable.parameter_allocations[parameter]
        if source == target:
            continue
        taken = source in partners or target in partners
        if taken or executable.allocations[source].is_entry_computation_parameter:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"result {result} of {executable.module} shares allocation {source} with another argument or "
                f"result, so it cannot change places with parameter {parameter}",
            )
        partners |= {source: target, target: source}
    return partners


def _allocate(
    executable: Executable, stream: se.Stream, partners: Mapping[int, int], undo: ExitStack
) -> dict[int, DeviceAddress]:
    """One block of memory with a place for each allocation that needs one; freed by ``undo``."""
    sizes = {
        each.index: each.size
        for each in executable.allocations
        if each.size and not (each.is_thread_local or each.is_constant)
    }
    offsets, total = {}, 0
    for index, size in sizes.items():
        offsets[index] = total
        total += round_up(max(size, sizes.get(partners.get(index, index), 0)), _ALIGNMENT)
    if not total:
        return {}
    executor = stream.executor
    memory = undo.enter_context(executor.create_allocation(total))
    reservation = undo.enter_context(executor.create_reservation(total))
    mapping = undo.enter_context(reservation.map_to(0, memory.size, memory))
    return {index: mapping.address.slice(offsets[index], size) for index, size in sizes.items()}
