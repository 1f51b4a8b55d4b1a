"""Thunks -> thunks with command buffers, and a reason for every thunk left outside.

Mirrors ``xla/backends/gpu/runtime/command_buffer_conversion_pass.cc``. Invariant: flattening the command
buffers of the result gives back the executable's thunks, in order, each exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from jax_cmdbuf.executable.executable import DeviceDescription, Executable
from jax_cmdbuf.executable.ffi_traits import FFI_TRAITS
from jax_cmdbuf.executable.thunks import Thunk

__all__ = [
    "CommandBuffer",
    "Conversion",
    "LeftOut",
    "LeftOutReason",
    "command_buffer_allocations",
    "convert",
]


class LeftOutReason(Enum):
    """Why a thunk is in no command buffer; the value is a sentence part for people."""

    KIND_NEVER_RECORDED = "its kind is never recorded"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A thunk outside every command buffer.

    Attributes:
      thunk: the thunk.
      reason: the class of reason.
      detail: one sentence part with the numbers and names, for example "3 thunks <
      xla_gpu_graph_min_graph_size=5".
    """

    thunk: Thunk
    reason: LeftOutReason
    detail: str


@dataclass(frozen=True, slots=True)
class CommandBuffer:
    """One command buffer.

    Attributes:
      commands: its top-level thunks in order (a while or conditional among them is recorded whole).
      path: where its list is: (id of the enclosing thunk, index of the nested list) from the outside in;
        empty for the program's own list.
      allocations: indices of every allocation its thunks, nested ones included, use.
    """

    commands: tuple[Thunk, ...]
    path: tuple[tuple[int, int], ...] = ()
    allocations: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """XLA's annotation: ``command_buffer_<id of its first thunk>``."""
        return f"command_buffer_{self.commands[0].id}"


@dataclass(frozen=True)
class Conversion:
    """What the conversion pass made of a program.

    Attributes:
      sequence: the program after the pass; a command buffer is a thunk of kind "kCommandBuffer", id -1, whose
        only nested list is its commands. Loop bodies and branches are rewritten in place.
      command_buffers: all command buffers in program order, those in loop bodies and branches included.
      left_out: thunk id -> why the thunk is in no command buffer (thunks nested in a left-out thunk
      included).
      notes: what was assumed and from where (device description, FFI traits, rules), one sentence each.
    """

    sequence: tuple[Thunk, ...]
    command_buffers: tuple[CommandBuffer, ...]
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def convert(
    executable: Executable,
    *,
    device: DeviceDescription | None = None,
    ffi_traits: Mapping[str, bool] = FFI_TRAITS,
) -> Conversion:
    """Groups the executable's thunks into command buffers as XLA does when it loads the program.

    Args:
      executable: the program; ``debug_options`` must be the resolved ones.
      device: the device that loads it; None: the description stored in the executable.
      ffi_traits: FFI target -> whether its handler is command-buffer compatible; a missing target is not.

    Raises:
      InputError: neither ``device`` nor the executable describes a device (jaxlib 0.11 and older).
    """
    raise NotImplementedError


def command_buffer_allocations(conversion: Conversion) -> frozenset[int]:
    """Indices of every allocation that some command buffer uses, nested command buffers included."""
    return frozenset(index for buffer in conversion.command_buffers for index in buffer.allocations)
