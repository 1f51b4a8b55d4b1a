"""A command list as it stands recorded in one device command buffer.

Mirrors ``CommandExecutor::RecordCreate`` and ``RecordUpdate`` of
``xla/backends/gpu/runtime/command_executor.cc``.
Invariant: after ``create`` or ``update`` with every changed allocation, all recorded arguments are addresses
of the table that was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from jax_cmdbuf.events import EventSink, RecordCreate, UpdateDone
from jax_cmdbuf.executable.thunks import KernelInfo, Thunk, ThunkKind
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations
from jax_cmdbuf.runtime.commands import Command, CommandList
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError

__all__ = ["Recording"]

_COPY = ThunkKind("kCopy")
_Commands = tuple[se.Command, ...]


class _Leaf:
    """A command without nested commands: a copy, or a launch with one argument per slice."""

    __slots__ = ("_dimensions", "_handle", "_kernel", "_name", "_slices", "_tensor_maps")

    def __init__(self, command: Command, executor: se.StreamExecutor, owner: Thunk | None) -> None:
        thunk = command.thunk
        # Below a dynamic slice fusion a thunk names private allocations; what it touches are its owner's
        # slices.
        uses = (owner or thunk).own_uses
        self._slices = tuple((use.slice.allocation, use.slice.offset, use.slice.size) for use in uses)
        self._kernel: se.Kernel | None = None
        self._name = f"a copy of HLO instruction {thunk.name or thunk.id}"
        self._dimensions = se.LaunchDimensions()
        self._tensor_maps: tuple[tuple[int, se.TensorMap], ...] = ()
        if owner is not None or thunk.kind != _COPY or len(self._slices) != 2:
            kernel = (
                thunk.info if isinstance(thunk.info, KernelInfo) else KernelInfo(thunk.name or thunk.kind)
            )
            image = kernel.cubin or (kernel.ptx or "").encode()
            self._name = f"kernel {kernel.name} of HLO instruction {thunk.name or thunk.id}"
            try:
                self._kernel = executor.load_kernel(image, kernel.name)
            except DriverError as error:
                raise error.while_doing(f"loading {self._name}") from error
            self._tensor_maps = kernel.tensor_maps
            self._dimensions = se.LaunchDimensions(kernel.grid, kernel.block, kernel.shared_memory_bytes)
        self._handle: se.Command | None = None

    def _addresses(self, addresses: Sequence[DeviceAddress]) -> list[DeviceAddress]:
        return [addresses[index].slice(offset, size) for index, offset, size in self._slices]

    def _arguments(self, addresses: Sequence[DeviceAddress]) -> list[se.KernelArgument]:
        arguments: list[se.KernelArgument] = [*self._addresses(addresses)]
        for position, tensor_map in self._tensor_maps:
            address = arguments[position]
            assert isinstance(address, DeviceAddress)
            arguments[position] = se.TensorMapArgument(address, tensor_map)
        return arguments

    def create(
        self, table: BufferAllocations, buffer: se.CommandBuffer, after: _Commands, sink: EventSink
    ) -> _Commands:
        try:
            if self._kernel is None:
                source, destination = self._addresses(table.addresses)
                self._handle = buffer.create_memcpy(destination, source, after)
            else:
                arguments = self._arguments(table.addresses)
                self._handle = buffer.create_launch(self._kernel, self._dimensions, arguments, after)
        except DriverError as error:
            raise error.while_doing(f"recording {self._name}") from error
        return (self._handle,)

    def update(
        self,
        table: BufferAllocations,
        changed: frozenset[int] | None,
        is_initialization: bool,
        buffer: se.CommandBuffer,
        sink: EventSink,
    ) -> None:
        assert self._handle is not None
        try:
            if self._kernel is None:
                source, destination = self._addresses(table.addresses)
                buffer.update_memcpy(self._handle, destination, source)
            else:
                arguments = self._arguments(table.addresses)
                buffer.update_launch(self._handle, self._kernel, self._dimensions, arguments)
        except DriverError as error:
            raise error.while_doing(f"updating {self._name}") from error

    def close(self) -> None:
        """Nothing of its own to release."""


class _Nesting:
    """A command with nested command lists, each in a device command buffer of its own."""

    __slots__ = ("_children", "_handles", "_inherit")

    def __init__(self, command: Command, executor: se.StreamExecutor, owner: Thunk | None) -> None:
        owner = owner or (None if command.children_inherit else command.thunk)
        self._inherit = command.children_inherit
        self._children = tuple(Recording(child, executor, owner) for child in command.children)
        self._handles: list[se.Command] = []

    def create(
        self, table: BufferAllocations, buffer: se.CommandBuffer, after: _Commands, sink: EventSink
    ) -> _Commands:
        for child in self._children:
            child.create(table, sink)
            self._handles.append(buffer.create_nested(child.buffer, after))
            after = (self._handles[-1],)
        return after

    def update(
        self,
        table: BufferAllocations,
        changed: frozenset[int] | None,
        is_initialization: bool,
        buffer: se.CommandBuffer,
        sink: EventSink,
    ) -> None:
        for child, handle in zip(self._children, self._handles, strict=True):
            child.update(table, changed if self._inherit else None, sink, is_initialization)
            buffer.update_nested(handle, child.buffer)

    def close(self) -> None:
        """Releases the nested device command buffers."""
        with ExitStack() as stack:
            for child in self._children:
                stack.callback(child.close)


class Recording:
    """One command list in one device command buffer.

    Attributes:
      commands: the commands.
      buffer: the device's command buffer; this object owns it.
    """

    __slots__ = ("_parts", "buffer", "commands")

    def __init__(
        self, commands: CommandList, executor: se.StreamExecutor, owner: Thunk | None = None
    ) -> None:
        self.commands = commands
        self.buffer = executor.create_command_buffer()
        self._parts = tuple(
            _Nesting(command, executor, owner) if command.children else _Leaf(command, executor, owner)
            for command in commands.commands
        )

    @property
    def is_created(self) -> bool:
        """Whether the commands were recorded; before that only ``create`` is legal."""
        return self.buffer.state is not se.CommandBufferState.CREATE

    def create(self, table: BufferAllocations, sink: EventSink) -> None:
        """Records all commands for the first time; nested lists are told after their parent."""
        sink.emit(RecordCreate(len(self.commands)))
        # One after the other: program order is always right, and finding what may overlap is a choice of
        # speed.
        after: _Commands = ()
        for part in self._parts:
            after = part.create(table, self.buffer, after, sink)
        self._finalize()

    def update(
        self,
        table: BufferAllocations,
        changed: frozenset[int] | None,
        sink: EventSink,
        is_initialization: bool = False,
    ) -> None:
        """Records those commands again that ``CommandList.updated`` names; nested lists are told first."""
        if not self._parts:
            return
        self.buffer.update()
        updated = 0
        for position in self.commands.updated(changed, is_initialization):
            self._parts[position].update(table, changed, is_initialization, self.buffer, sink)
            updated += 1
        self._finalize()
        sink.emit(UpdateDone(len(self._parts), len(self._parts) - updated))

    def _finalize(self) -> None:
        try:
            self.buffer.finalize()
        except DriverError as error:
            raise error.while_doing(f"instantiating a graph of {len(self.commands)} commands") from error

    def close(self) -> None:
        """Releases the device command buffers."""
        with ExitStack() as stack:
            stack.callback(self.buffer.close)
            for part in self._parts:
                stack.callback(part.close)
