"""A program as the driver's commands: kernel launches, copies and fills, each with the slices it uses.

Mirrors how ``xla/backends/gpu/runtime/{custom_kernel,copy,memzero}_thunk.cc`` pack arguments. Invariant: a
thunk becomes commands only if the form of every argument is known to be right; anything else is named in
``Unsupported`` with the reason, so that the program can be left to XLA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jax_cmdbuf.executable.buffers import BufferAllocationSlice
from jax_cmdbuf.executable.thunks import CopyDirection, CopyInfo, KernelInfo, Thunk

__all__ = ["Copy", "Fill", "Launch", "LaunchProgram", "Step", "Unsupported", "launch_program"]

_POINTER_BYTES = 8


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
      thunk: the thunk it comes from.
      kernel: its kernel: image, name, dimensions.
      arguments: one slice per kernel parameter; the parameter is the slice's address.
    """

    thunk: Thunk = field(repr=False)
    kernel: KernelInfo
    arguments: tuple[BufferAllocationSlice, ...]

    @property
    def slices(self) -> tuple[BufferAllocationSlice, ...]:
        """Every slice whose address the command holds."""
        return self.arguments


@dataclass(frozen=True)
class Copy:
    """A copy between two slices of device memory, ``source.size`` bytes."""

    thunk: Thunk = field(repr=False)
    destination: BufferAllocationSlice
    source: BufferAllocationSlice

    @property
    def slices(self) -> tuple[BufferAllocationSlice, ...]:
        """Every slice whose address the command holds."""
        return self.destination, self.source


@dataclass(frozen=True)
class Fill:
    """Zeros for a slice."""

    thunk: Thunk = field(repr=False)
    destination: BufferAllocationSlice

    @property
    def slices(self) -> tuple[BufferAllocationSlice, ...]:
        """Every slice whose address the command holds."""
        return (self.destination,)


Step = Launch | Copy | Fill


@dataclass(frozen=True)
class Unsupported:
    """A thunk that cannot become commands of ours, and why."""

    thunk: Thunk = field(repr=False)
    reason: str

    def __str__(self) -> str:
        return f"{self.thunk.kind} {self.thunk.name!r} (thunk {self.thunk.id}): {self.reason}"


@dataclass(frozen=True)
class LaunchProgram:
    """The commands of a program in program order, or what stands in the way.

    ``steps`` are complete only if ``unsupported`` is empty.
    """

    steps: tuple[Step, ...]
    unsupported: tuple[Unsupported, ...]


def launch_program(thunks: Iterable[Thunk]) -> LaunchProgram:
    """The driver's commands for a list of thunks, sequential nesting resolved."""
    steps: list[Step] = []
    unsupported: list[Unsupported] = []
    for item in _commands(thunks):
        if isinstance(item, Unsupported):
            unsupported.append(item)
        else:
            steps.append(item)
    return LaunchProgram(tuple(steps), tuple(unsupported))


def _commands(thunks: Iterable[Thunk]) -> Iterator[Step | Unsupported]:
    for thunk in thunks:
        if isinstance(thunk.info, KernelInfo):
            yield from _launch(thunk, thunk.info)
        elif isinstance(thunk.info, CopyInfo):
            yield _copy(thunk, thunk.info)
        elif thunk.kind == "kSequential":
            yield from _commands(nested for thunks in thunk.nested for nested in thunks)
        elif thunk.kind == "kMemzero":
            yield Fill(thunk, thunk.own_uses[0].slice)
        else:
            yield Unsupported(thunk, "only kernels, copies on the device and zero fills become commands")


def _copy(thunk: Thunk, info: CopyInfo) -> Step | Unsupported:
    if info.direction is not CopyDirection.DEVICE_TO_DEVICE:
        return Unsupported(thunk, f"a copy {info.direction.value}, not between device buffers")
    sources = [use.slice for use in thunk.own_uses if not use.is_write]
    destinations = [use.slice for use in thunk.own_uses if use.is_write]
    if len(sources) != 1 or len(destinations) != 1 or sources[0].size != destinations[0].size:
        return Unsupported(thunk, "a copy that is not from one slice to one of the same size")
    return Copy(thunk, destinations[0], sources[0])


def _launch(thunk: Thunk, kernel: KernelInfo) -> Iterator[Step | Unsupported]:
    message: Any = kernel.message
    reason = _why_not(kernel, message)
    if reason is not None:
        yield Unsupported(thunk, reason)
        return
    arguments = tuple(use.slice for use in thunk.own_uses)
    if len(arguments) != len(message.args):
        yield Unsupported(thunk, f"{len(message.args)} arguments, but {len(arguments)} slices")
        return
    for index in message.zeroed_output_buffer_indices:
        yield Fill(thunk, arguments[index])
    yield Launch(thunk, kernel, arguments)


def _why_not(kernel: KernelInfo, message: Any) -> str | None:
    """What about this kernel has no verified way to be launched; None: nothing."""
    if kernel.cubin is None and kernel.ptx is None:
        return "its machine code is in the module's own binary or in this process"
    if kernel.cluster is not None and kernel.cluster != (1, 1, 1):
        return f"it asks for thread-block clusters of {kernel.cluster}"
    if message.tma_metadata.arg_index_to_tma_info:
        return "it takes tensor maps (TMA) as arguments"
    spec = message.custom_kernel.kernel_spec
    if not spec.HasField("kernel_args_packing_spec"):
        count = len(message.args)
        return None if spec.arity == count else f"{spec.arity} parameters for {count} buffers"
    packed = spec.kernel_args_packing_spec.kernel_arguments
    if len(packed) != len(message.args):
        return f"{len(packed)} packed arguments for {len(message.args)} buffers"
    for position, argument in enumerate(packed):
        if not _is_pointer(argument, position):
            return f"argument {position} is packed in a form other than a pointer to its buffer"
    return None


def _is_pointer(argument: Any, position: int) -> bool:
    """Whether a packed argument is just the address of the buffer in the same position."""
    if len(argument.relocations) != 1:
        return False
    relocation = argument.relocations[0]
    kind = type(relocation).DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[relocation.kind].name
    zeros = not argument.data or argument.data == bytes(_POINTER_BYTES)
    return kind == "KIND_BITS64_ABSOLUTE" and relocation.argument_index == position and zeros
