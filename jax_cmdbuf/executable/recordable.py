"""Which programs we can record ourselves: kernels given pointers and tensor maps, and copies on the device.

Mirrors how ``xla/backends/gpu/runtime/{custom_kernel,copy}_thunk.cc`` pack arguments. Invariant: a thunk
counts as recordable only if the form of everything it needs was verified on a GPU; anything else is named
with the reason, so that the program can be left to XLA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.thunks import CopyDirection, CopyInfo, KernelInfo, Thunk

__all__ = ["Unsupported", "unsupported_thunks"]

_POINTER_BYTES = 8


@dataclass(frozen=True)
class Unsupported:
    """A thunk that only XLA can run, and why."""

    thunk: Thunk = field(repr=False)
    reason: str

    def __str__(self) -> str:
        return f"{self.thunk.kind} {self.thunk.name!r} (thunk {self.thunk.id}): {self.reason}"


def unsupported_thunks(executable: Executable) -> tuple[Unsupported, ...]:
    """What stands in the way of running the whole program with our own commands; empty: nothing."""
    lost = frozenset(
        each.allocation
        for each in executable.constants
        if each.content is None and executable.allocations[each.allocation].size
    )
    return tuple(_unsupported(executable.thunks, lost))


def _unsupported(thunks: Iterable[Thunk], lost: frozenset[int]) -> Iterator[Unsupported]:
    for thunk in thunks:
        reason = _why_not(thunk)
        if reason is not None:
            yield Unsupported(thunk, reason)
        elif thunk.kind == "kSequential":
            for nested in thunk.nested:
                yield from _unsupported(nested, lost)
        elif unknown := thunk.allocations & lost:
            reason = f"the bytes of constant allocation {min(unknown)} are not in the executable"
            yield Unsupported(thunk, reason)


def _why_not(thunk: Thunk) -> str | None:
    match thunk.info:
        case KernelInfo():
            return _why_not_kernel(thunk, thunk.info)
        case CopyInfo(direction=CopyDirection.DEVICE_TO_DEVICE):
            sizes = [use.slice.size for use in thunk.own_uses]
            return None if len(sizes) == 2 and sizes[0] == sizes[1] else "a copy between different sizes"
        case CopyInfo():
            return f"a copy {thunk.info.direction.value}, not between device buffers"
    if thunk.kind == "kSequential":
        return None
    return "only kernels and copies on the device become commands"


def _why_not_kernel(thunk: Thunk, kernel: KernelInfo) -> str | None:
    message: Any = kernel.message
    if kernel.cubin is None and kernel.ptx is None:
        return "its machine code is in the module's own binary or in this process"
    if kernel.cluster is not None and kernel.cluster != (1, 1, 1):
        return f"it asks for thread-block clusters of {kernel.cluster}"
    if message.zeroed_output_buffer_indices:
        return "it wants outputs filled with zeros first"
    count = len(message.args)
    if len(thunk.own_uses) != count:
        return f"{count} arguments, but {len(thunk.own_uses)} slices"
    spec = message.custom_kernel.kernel_spec
    if not spec.HasField("kernel_args_packing_spec"):
        return None if spec.arity == count else f"{spec.arity} parameters for {count} buffers"
    packed = spec.kernel_args_packing_spec.kernel_arguments
    if len(packed) != count or not all(map(_is_pointer, packed, range(count))):
        return "its arguments are packed in a form other than one per buffer"
    return None


def _is_pointer(argument: Any, position: int) -> bool:
    """Whether a packed argument is just the address of the buffer in the same position."""
    if len(argument.relocations) != 1:
        return False
    relocation = argument.relocations[0]
    kind = type(relocation).DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[relocation.kind].name
    zeros = not argument.data or argument.data == bytes(_POINTER_BYTES)
    return kind == "KIND_BITS64_ABSOLUTE" and relocation.argument_index == position and zeros
