"""Buffer allocations and the slices of them that thunks use.

Mirrors ``xla/service/buffer_assignment.h`` (BufferAllocation and its predicates) and
``xla/runtime/buffer_use.h``.
Invariant: an allocation's ``index`` is its position in the executable's allocation table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Access", "BufferAllocation", "BufferAllocationSlice", "BufferUse"]


@dataclass(frozen=True, slots=True)
class BufferAllocation:
    """One ``BufferAllocation`` of the executable's buffer assignment.

    Attributes:
      index: position in the allocation table.
      size: bytes, before any rounding.
      color: memory space number; 0 is the default device memory.
      is_thread_local: scalars of reducers and comparators; nothing is allocated for them at run time.
      is_tuple: holds a table of pointers (8 bytes an element) or a value list with one; not decisive alone.
      is_constant: its bytes come from the module's constants.
      parameter_number: the entry parameter it holds, or None.
      parameter_shape_index: the leaf inside that parameter.
      maybe_live_out: holds an output when the program ends.
      is_parameter_aliased_with_output: a donated parameter whose memory becomes an output.
    """

    index: int
    size: int
    color: int = 0
    is_thread_local: bool = False
    is_tuple: bool = False
    is_constant: bool = False
    parameter_number: int | None = None
    parameter_shape_index: tuple[int, ...] = ()
    maybe_live_out: bool = False
    is_parameter_aliased_with_output: bool = False

    @property
    def is_entry_computation_parameter(self) -> bool:
        """Whether the caller's argument is this allocation."""
        return self.parameter_number is not None

    @property
    def is_input_or_output(self) -> bool:
        """XLA's ``IsInputOrOutput``: an entry parameter, or possibly live out."""
        return self.is_entry_computation_parameter or self.maybe_live_out

    @property
    def is_preallocated_temp_buffer(self) -> bool:
        """XLA's ``IsPreallocatedTempBuffer``: neither input, output, thread-local nor constant."""
        return not (self.is_input_or_output or self.is_thread_local or self.is_constant)


@dataclass(frozen=True, slots=True)
class BufferAllocationSlice:
    """``size`` bytes at ``offset`` of the allocation with index ``allocation``."""

    allocation: int
    offset: int
    size: int

    def overlaps(self, other: BufferAllocationSlice) -> bool:
        """Whether both name at least one common byte (XLA's ``OverlapsWith``)."""
        return (
            self.allocation == other.allocation
            and self.offset < other.offset + other.size
            and other.offset < self.offset + self.size
        )


class Access(Enum):
    """How a thunk touches a slice (XLA's ``BufferUse::MemoryAccess``)."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class BufferUse:
    """One access of a thunk to a slice."""

    slice: BufferAllocationSlice
    access: Access

    @property
    def is_write(self) -> bool:
        """Whether the slice may be written."""
        return self.access is Access.WRITE
