"""What a device must offer to the VMM allocator and the runtime; mirrors ``stream_executor/*.h``.

A backend supplies ``memory.VirtualMemory`` (the driver's calls), a ``Stream`` with a timeline and a
``CommandBuffer``; the handles over them are in ``memory`` and shared. Invariant: everything above this
module behaves the same on every backend; a refused call raises ``DriverError`` (of ``memory``) and has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import MemoryAllocation, MemoryReservation, VirtualMemory

__all__ = [
    "Command",
    "CommandBuffer",
    "CommandBufferState",
    "Kernel",
    "KernelArgument",
    "LaunchDimensions",
    "Stream",
    "StreamExecutor",
    "TensorMap",
    "TensorMapArgument",
]


class CommandBufferState(Enum):
    """Where a command buffer is in its life.

    Legal moves: CREATE -> FINALIZED (``finalize``), FINALIZED -> UPDATE (``update``), UPDATE -> FINALIZED.
    Commands are created in CREATE, updated in UPDATE and submitted in FINALIZED.
    """

    CREATE = "create"
    UPDATE = "update"
    FINALIZED = "finalized"


@dataclass(frozen=True, slots=True)
class LaunchDimensions:
    """How a kernel is launched: blocks and threads per block in x, y, z; dynamic shared memory in bytes."""

    blocks: tuple[int, int, int] = (1, 1, 1)
    threads: tuple[int, int, int] = (1, 1, 1)
    shared_memory_bytes: int = 0


class TensorMap(Protocol):
    """How the tensor memory accelerator is to see a buffer; fields as of ``cuTensorMapEncodeTiled``."""

    @property
    def element_size(self) -> int:
        """Bytes of an element: 1, 2, 4 or 8."""

    @property
    def global_dims(self) -> tuple[int, ...]:
        """Elements of each dimension, fastest first."""

    @property
    def global_strides(self) -> tuple[int, ...]:
        """Bytes between neighbours in each dimension but the first."""

    @property
    def box_dims(self) -> tuple[int, ...]:
        """Elements that one copy moves, in each dimension."""

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Its step in each dimension."""

    @property
    def interleave(self) -> int:
        """``CUtensorMapInterleave``."""

    @property
    def swizzle(self) -> int:
        """``CUtensorMapSwizzle``."""

    @property
    def l2_promotion(self) -> int:
        """``CUtensorMapL2promotion``."""

    @property
    def float_oob_fill(self) -> int:
        """``CUtensorMapFloatOOBfill``."""


@dataclass(frozen=True, slots=True)
class TensorMapArgument:
    """A kernel argument that is a tensor map of the buffer at ``address``."""

    address: DeviceAddress
    tensor_map: TensorMap


# A pointer, a tensor map, or the bytes of an argument passed by value.
KernelArgument = DeviceAddress | TensorMapArgument | bytes


class Kernel(Protocol):
    """A loaded kernel."""

    @property
    def name(self) -> str:
        """The symbol in its module."""


class Command(Protocol):
    """One command of one command buffer; only that buffer accepts it."""


class CommandBuffer(Protocol):
    """A recorded list of commands that is submitted as one (``stream_executor/command_buffer.h``).

    Every call in the wrong state raises ``StatusError`` FAILED_PRECONDITION that names the state, and
    changes nothing. ``dependencies`` are earlier commands of the same buffer that must finish first.
    """

    @property
    def state(self) -> CommandBufferState:
        """Where the buffer is in its life."""

    def create_launch(
        self,
        kernel: Kernel,
        dimensions: LaunchDimensions,
        arguments: Sequence[KernelArgument],
        dependencies: Sequence[Command] = (),
    ) -> Command:
        """Appends a kernel launch."""

    def update_launch(
        self,
        command: Command,
        kernel: Kernel,
        dimensions: LaunchDimensions,
        arguments: Sequence[KernelArgument],
    ) -> None:
        """Replaces everything about a launch but its place in the buffer."""

    def create_memcpy(
        self, destination: DeviceAddress, source: DeviceAddress, dependencies: Sequence[Command] = ()
    ) -> Command:
        """Appends a device-to-device copy of ``source.size`` bytes."""

    def update_memcpy(self, command: Command, destination: DeviceAddress, source: DeviceAddress) -> None:
        """Replaces the addresses of a copy."""

    def create_memset(
        self, destination: DeviceAddress, pattern: bytes, dependencies: Sequence[Command] = ()
    ) -> Command:
        """Appends filling ``destination`` with a pattern of 1, 2 or 4 bytes."""

    def update_memset(self, command: Command, destination: DeviceAddress, pattern: bytes) -> None:
        """Replaces address and pattern of a fill."""

    def create_nested(self, nested: CommandBuffer, dependencies: Sequence[Command] = ()) -> Command:
        """Appends a finalized command buffer as one command."""

    def update_nested(self, command: Command, nested: CommandBuffer) -> None:
        """Replaces a nested command buffer."""

    def update(self) -> None:
        """FINALIZED -> UPDATE."""

    def finalize(self) -> None:
        """CREATE or UPDATE -> FINALIZED."""

    def submit(self, stream: Stream) -> None:
        """Runs the commands on ``stream``, behind what it already holds."""

    def close(self) -> None:
        """Releases the buffer's handles; more calls of close do nothing."""


class Stream(Protocol):
    """An ordered queue of device work, with a timeline of sequence numbers.

    The timeline value is 0 at first. It reaches ``seqno`` when everything enqueued before
    ``enqueue_seqno(seqno)`` has finished; sequence numbers are enqueued in ascending order.
    """

    @property
    def executor(self) -> StreamExecutor:
        """The device this stream belongs to."""

    def enqueue_seqno(self, seqno: int) -> None:
        """Enqueues a write of ``seqno`` to the timeline (``cuStreamWriteValue64``)."""

    def completed_seqno(self) -> int:
        """The timeline's value, without waiting."""

    def memcpy_d2d(self, destination: DeviceAddress, source: DeviceAddress) -> None:
        """Enqueues a copy of ``source.size`` bytes on the device (``cuMemcpyDtoDAsync``)."""

    def memcpy_h2d(self, destination: DeviceAddress, source: int) -> None:
        """Enqueues a copy of ``destination.size`` bytes from pageable host memory at ``source``.

        The bytes are read before the call returns (``cuMemcpyHtoDAsync``).
        """

    def wait_microseconds(self, duration: float) -> None:
        """Lets the calling thread wait that long, so that the next look at the timeline can see more."""

    def synchronize(self) -> None:
        """Waits until everything enqueued so far has finished."""


class StreamExecutor(Protocol):
    """One device (``stream_executor/stream_executor.h``)."""

    @property
    def device_ordinal(self) -> int:
        """The device's number, from 0."""

    @property
    def memory(self) -> VirtualMemory:
        """The driver's virtual-memory calls."""

    @property
    def granularity(self) -> int:
        """Bytes of which every physical allocation, reservation and mapping is a multiple (2 MiB on H200)."""

    def create_allocation(self, size: int) -> MemoryAllocation:
        """Physical memory of at least ``size`` bytes, rounded up to the granularity, mapped nowhere.

        Raises:
          DriverError: RESOURCE_EXHAUSTED when the device has no more memory.
        """

    def create_reservation(self, size: int) -> MemoryReservation:
        """An address range of at least ``size`` bytes, rounded up to the granularity, still unmapped."""

    def create_stream(self) -> Stream:
        """A new stream of this device."""

    def create_command_buffer(self) -> CommandBuffer:
        """An empty command buffer in state CREATE."""

    def write(self, address: DeviceAddress, content: bytes) -> None:
        """Copies host bytes to the device and waits until they are there (``cuMemcpyHtoD``)."""

    def load_kernel(self, module: bytes, name: str) -> Kernel:
        """Loads the kernel ``name`` from a module's image (cubin or PTX)."""
