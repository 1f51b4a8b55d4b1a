"""Thunks: the steps of a compiled program, as a tree.

Mirrors ``xla/backends/gpu/runtime/thunk.h`` and ``thunk.proto``. Invariant: ``own_uses`` are the slices the
thunk itself names; ``uses`` adds those of nested thunks, except below a dynamic slice fusion, whose nested
thunks name private allocations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NewType

from jax_cmdbuf.executable.buffers import BufferUse

__all__ = [
    "PRIVATE_ALLOCATION_KINDS",
    "AsyncInfo",
    "CollectiveInfo",
    "ConditionalInfo",
    "CopyDirection",
    "CopyInfo",
    "CustomCallInfo",
    "DynamicSliceFusionInfo",
    "KernelInfo",
    "TensorMap",
    "Thunk",
    "ThunkInfo",
    "ThunkKind",
    "WhileInfo",
]

# XLA's Thunk::KindToString spelling, for example "kCustomKernel". Open: a new jaxlib may bring an unknown
# kind.
ThunkKind = NewType("ThunkKind", str)


# Kinds whose nested thunks number allocations of their own (kDynamicSlice: jaxlib 0.10's form of the same).
PRIVATE_ALLOCATION_KINDS = frozenset({"kDynamicSliceFusion", "kDynamicSlice"})


@dataclass(frozen=True)
class TensorMap:
    """How a kernel argument describes its buffer to the tensor memory accelerator (TMA).

    Mirrors ``stream_executor/gpu/tma_metadata.h``; the numbers of the last four fields are the CUDA driver's.

    Attributes:
      element_size: bytes of an element.
      global_dims: elements of each dimension, fastest first.
      global_strides: bytes from one element to the next in each dimension but the first.
      box_dims, element_strides: the part that one copy moves, and its step, in elements.
    """

    element_size: int
    global_dims: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dims: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    float_oob_fill: int = 0


@dataclass(frozen=True)
class KernelInfo:
    """A launch: kernel name, machine code and dimensions.

    Attributes:
      name: the entry point.
      cubin: machine code that holds it, or None where the module's own binary does.
      ptx: its PTX text, or None.
      grid, block, cluster: launch dimensions (x, y, z); cluster None where none is asked for.
      shared_memory_bytes: dynamic shared memory.
      tensor_maps: (argument, tensor map) for arguments that are tensor maps of their buffer, not pointers.
      message: the thunk's proto message, for argument forms that only a launcher needs (packing spec).
    """

    name: str
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    cluster: tuple[int, int, int] | None = None
    shared_memory_bytes: int = 0
    cubin: bytes | None = field(default=None, repr=False)
    ptx: str | None = field(default=None, repr=False)
    tensor_maps: tuple[tuple[int, TensorMap], ...] = ()
    message: object | None = field(default=None, repr=False, compare=False)


class CopyDirection(Enum):
    """Which memories a ``kCopy`` moves bytes between; UNSPECIFIED is XLA's plain copy thunk."""

    DEVICE_TO_DEVICE = "device to device"
    DEVICE_TO_HOST = "device to host"
    HOST_TO_DEVICE = "host to device"
    UNSPECIFIED = "unspecified"


@dataclass(frozen=True)
class CopyInfo:
    """``kCopy``: direction and number of bytes."""

    direction: CopyDirection
    size: int = 0


@dataclass(frozen=True)
class WhileInfo:
    """``kWhile``: nested lists are (condition, body)."""

    trip_count: int | None = None


@dataclass(frozen=True)
class ConditionalInfo:
    """``kConditional``: nested lists are the branches in order."""


@dataclass(frozen=True)
class AsyncInfo:
    """``kAsyncStart`` and ``kAsyncDone``; ``stream`` is (kind of stream id, number), None for a done."""

    async_execution_id: int
    stream: tuple[str, int] | None = None


@dataclass(frozen=True)
class CollectiveInfo:
    """A collective's own facts.

    Attributes:
      op: name as in the collectives filter, for example "ALLREDUCE".
      replica_groups: ids of the devices that take part together.
      one_shot_kernel_enabled, element_bits: what the ragged all-to-all rule asks.
    """

    op: str
    replica_groups: tuple[tuple[int, ...], ...] = ()
    one_shot_kernel_enabled: bool = False
    element_bits: tuple[int, ...] = ()


@dataclass(frozen=True)
class CustomCallInfo:
    """``kCustomCall``: the FFI target's name."""

    target_name: str


@dataclass(frozen=True)
class DynamicSliceFusionInfo:
    """``kDynamicSliceFusion``; ``loop_dependent``: some offset moves with a loop index."""

    verify_offsets: bool = False
    loop_dependent: bool = False


ThunkInfo = (
    KernelInfo
    | CopyInfo
    | WhileInfo
    | ConditionalInfo
    | AsyncInfo
    | CollectiveInfo
    | CustomCallInfo
    | DynamicSliceFusionInfo
    | None
)


@dataclass(frozen=True)
class Thunk:
    """One step of the program.

    Attributes:
      kind: XLA's name of the kind.
      id: ``thunk_info.thunk_id``; -1 for a command buffer, which has none.
      name: ``thunk_info.profile_annotation``, the HLO instruction's name.
      own_uses: slices this thunk names itself.
      nested: thunk lists inside it (loop condition and body, branches, async region, group...).
      info: facts of its kind, or None.
    """

    kind: ThunkKind
    id: int
    name: str
    own_uses: tuple[BufferUse, ...] = ()
    nested: tuple[tuple[Thunk, ...], ...] = ()
    info: ThunkInfo = None

    @cached_property
    def uses(self) -> tuple[BufferUse, ...]:
        """Own uses, then those of nested thunks in order; a dynamic slice fusion has only its own."""
        if self.kind in PRIVATE_ALLOCATION_KINDS:
            return self.own_uses
        return self.own_uses + tuple(use for thunks in self.nested for thunk in thunks for use in thunk.uses)

    @cached_property
    def allocations(self) -> frozenset[int]:
        """Indices of every allocation the thunk, nested ones included, touches."""
        return frozenset(use.slice.allocation for use in self.uses)

    def walk(self) -> Iterator[Thunk]:
        """This thunk and every nested one, depth first, in program order."""
        yield self
        for thunks in self.nested:
            for thunk in thunks:
                yield from thunk.walk()
