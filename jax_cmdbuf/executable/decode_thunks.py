"""``ThunkProto`` -> :class:`Thunk`, by one table: a row per field of the proto's ``impl`` oneof.

Mirrors ``xla/backends/gpu/runtime/thunk.proto``; which slices are read and which written follows each thunk's
``buffer_uses()``. Invariant: every thunk of the message appears in the result; a kind without a row keeps its
name (from the proto's field) and counts all its slices as written, the careful reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from jax_cmdbuf.executable import decode_thunk_info as info
from jax_cmdbuf.executable.buffers import Access, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.thunks import (
    CollectiveInfo,
    ConditionalInfo,
    CopyDirection,
    Thunk,
    ThunkInfo,
    ThunkKind,
)

__all__ = ["decode_thunks"]

_SLICE = "xla.buffer_assignment.BufferAllocationSliceProto"
_Uses = Iterator[BufferUse]


@dataclass(frozen=True)
class _Row:
    """How to read one kind.

    Attributes:
      kind: XLA's name of it.
      reads, writes: fields that hold slices ("a.b" goes through a message), in the order of
      ``buffer_uses()``.
      nested: fields that hold a thunk list.
      uses: instead of reads and writes, where a flag decides.
      info: the facts of the kind.
    """

    kind: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    uses: Callable[[Any], _Uses] | None = None
    info: Callable[[Any], ThunkInfo] | None = None


def decode_thunks(protos: Iterable[Any]) -> tuple[Thunk, ...]:
    """Decodes a list of ``ThunkProto`` messages, with everything nested in them."""
    return tuple(_decode(proto) for proto in protos)


def _decode(proto: Any) -> Thunk:
    field: str | None = proto.WhichOneof("impl")
    header = proto.thunk_info
    if field is None:
        return Thunk(_unknown_kind(proto), header.thunk_id, header.profile_annotation)
    impl = getattr(proto, field)
    row = _ROWS.get(field)
    if row is None:
        kind = ThunkKind("k" + "".join(word.capitalize() for word in field.removesuffix("_thunk").split("_")))
        uses = tuple(BufferUse(piece, Access.WRITE) for piece in _all_slices(impl))
        return Thunk(kind, header.thunk_id, header.profile_annotation, uses)
    return Thunk(
        kind=ThunkKind(row.kind),
        id=header.thunk_id,
        name=header.profile_annotation,
        own_uses=tuple(row.uses(impl) if row.uses else _field_uses(impl, row)),
        nested=tuple(decode_thunks(protos) for field in row.nested for protos in _thunk_lists(impl, field)),
        info=row.info(impl) if row.info else None,
    )


def _unknown_kind(proto: Any) -> ThunkKind:
    """A kind that the installed schema does not have: named by its field number."""
    unknown = UnknownFieldSet(proto)
    return ThunkKind(f"kUnknown{unknown[0].field_number}" if len(unknown) else "kUnknown")


def _thunk_lists(impl: Any, field: str) -> list[Any]:
    """The thunk lists in a field: of one ``ThunkSequenceProto``, of each of several, or the field itself."""
    value = getattr(impl, field)
    described = impl.DESCRIPTOR.fields_by_name[field]
    if described.message_type.name != "ThunkSequenceProto":
        return [value]
    return [sequence.thunks for sequence in value] if described.is_repeated else [value.thunks]


def _field_uses(impl: Any, row: _Row) -> _Uses:
    for paths, access in ((row.reads, Access.READ), (row.writes, Access.WRITE)):
        for path in paths:
            for piece in _slices_at(impl, path):
                yield BufferUse(piece, access)


def _slices_at(message: Any, path: str) -> Iterator[BufferAllocationSlice]:
    first, _, rest = path.partition(".")
    field = message.DESCRIPTOR.fields_by_name.get(first)
    if field is None:  # a field of another release
        return
    if not field.is_repeated and not message.HasField(first):
        return
    value = getattr(message, first)
    for element in value if field.is_repeated else (value,):
        yield from _slices_at(element, rest) if rest else _all_slices(element)


def _all_slices(message: Any) -> Iterator[BufferAllocationSlice]:
    """Every slice in a message, however wrapped."""
    if message.DESCRIPTOR.full_name == _SLICE:
        yield BufferAllocationSlice(message.buffer_allocation_index, message.offset, message.size)
        return
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for element in value if field.is_repeated else (value,):
                yield from _all_slices(element)


def _flagged(slices: str, flags: str) -> Callable[[Any], _Uses]:
    """Uses of a list of slices with a parallel list of "is written" flags."""

    def uses(impl: Any) -> _Uses:
        written = getattr(impl, flags)
        for position, element in enumerate(getattr(impl, slices)):
            is_written = position < len(written) and written[position]
            for piece in _all_slices(element):
                yield BufferUse(piece, Access.WRITE if is_written else Access.READ)

    return uses


def _first_is_read(impl: Any) -> _Uses:
    """``SelectKThunk``: the input, then values and indices."""
    for position, piece in enumerate(_all_slices(impl)):
        yield BufferUse(piece, Access.WRITE if position else Access.READ)


def _dynamic_slice_fusion_uses(impl: Any) -> _Uses:
    """Only buffers that a parameter or result entry names; the others are loop counters of the offsets."""
    for entries, buffers, number, access in (
        (impl.parameters, impl.parameter_buffers, "parameter_number", Access.READ),
        (impl.results, impl.result_buffers, "result_number", Access.WRITE),
    ):
        for entry in entries:
            position = getattr(entry, number)
            if 0 <= position < len(buffers):
                for piece in _all_slices(buffers[position]):
                    yield BufferUse(piece, access)


def _copy(direction: CopyDirection, prefix: str = "copy_thunk.") -> _Row:
    return _Row(
        "kCopy",
        (prefix + "source_buffer",),
        (prefix + "destination_buffer",),
        info=info.copy(direction),
    )


def _collective(kind: str, buffers: str = "buffers") -> _Row:
    return _Row(
        kind, (buffers + ".source_buffer",), (buffers + ".destination_buffer",), info=info.collective(kind)
    )


_ROWS: dict[str, _Row] = {
    # kernels and copies
    "custom_kernel_thunk": _Row("kCustomKernel", uses=_flagged("args", "written"), info=info.custom_kernel),
    "kernel_thunk": _Row("kKernel", uses=_flagged("args", "written"), info=info.kernel),
    "device_to_device_copy_thunk": _copy(CopyDirection.DEVICE_TO_DEVICE),
    "device_to_host_copy_thunk": _copy(CopyDirection.DEVICE_TO_HOST),
    "host_to_device_copy_thunk": _copy(CopyDirection.HOST_TO_DEVICE),
    "copy_thunk": _copy(CopyDirection.UNSPECIFIED, prefix=""),
    "memzero_thunk": _Row("kMemzero", writes=("dest_buffer",)),
    "memset32bit_value_thunk": _Row("kMemset32BitValue", writes=("dest_buffer",)),
    "partition_id_thunk": _Row("kPartitionId", writes=("dest_buffer",)),
    "replica_id_thunk": _Row("kReplicaId", writes=("dest_buffer",)),
    "rng_seed_thunk": _Row("kRngSeed", writes=("dest_buffer",)),
    # libraries
    "gemm_thunk": _Row("kGemm", ("lhs_buffer", "rhs_buffer"), ("output_buffer", "workspace")),
    "cublas_lt_matmul_thunk": _Row(
        "kCublasLtMatmul",
        ("a", "b", "c", "group_sizes", "bias", "a_scale", "b_scale", "c_scale", "d_scale"),
        ("d", "aux", "d_amax", "workspace"),
    ),
    "cudnn_thunk": _Row("kCuDnn", uses=_flagged("args", "output_args")),
    "convolution_thunk": _Row("kConvolution", ("operand_buffers",), ("result_buffers", "scratch_buffer")),
    "convolution_reorder_thunk": _Row(
        "kConvolutionReorder",
        ("filter_input", "biases.bias_input"),
        ("filter_output", "biases.bias_output"),
    ),
    "fft_thunk": _Row("kFft", ("input_buffer",), ("output_buffer",)),
    "norm_thunk": _Row(
        "kNorm",
        ("x", "scale", "bias", "dy"),
        ("y_or_dx", "expectation", "norm_factor", "dscale", "dbias", "scratch"),
    ),
    "triangular_solve_thunk": _Row("kTriangularSolve", ("a_buffer",), ("b_buffer", "temp_buffer")),
    "select_k_thunk": _Row("kSelectK", uses=_first_is_read),
    "custom_call_thunk": _Row("kCustomCall", ("operands",), ("results",), info=info.custom_call),
    # control flow
    "while_thunk": _Row(
        "kWhile",
        ("condition_result_buffer_index",),
        nested=("condition_thunk_sequence", "body_thunk_sequence"),
        info=info.while_loop,
    ),
    "conditional_thunk": _Row(
        "kConditional", ("branch_index_buffer",), nested=("branch_thunks",), info=lambda _: ConditionalInfo()
    ),
    "sequential_thunk": _Row("kSequential", nested=("thunks",)),
    "dynamic_slice_fusion_thunk": _Row(
        "kDynamicSliceFusion",
        uses=_dynamic_slice_fusion_uses,
        nested=("embedded_thunks",),
        info=info.dynamic_slice_fusion,
    ),
    # jaxlib 0.10's form does not say which arguments are written
    "dynamic_slice_thunk": _Row(
        "kDynamicSlice", writes=("arguments",), nested=("embedded_thunk",), info=info.dynamic_slice
    ),
    "async_start_thunk": _Row("kAsyncStart", nested=("thunks",), info=info.async_start),
    "async_done_thunk": _Row("kAsyncDone", info=info.async_done),
    # host
    "host_execute_start_thunk": _Row("kHostExecuteStart", ("args",), ("results",)),
    "host_execute_done_thunk": _Row("kHostExecuteDone", (), ("results",)),
    "host_send_thunk": _Row("kHostSend", ("buffer",)),
    "host_send_done_thunk": _Row("kHostSendDone", ("buffer",)),
    "host_recv_thunk": _Row("kHostRecv", writes=("buffer",)),
    "host_recv_done_thunk": _Row("kHostRecvDone", writes=("buffer",)),
    "infeed_thunk": _Row("kInfeed", writes=("dest_slices",)),
    "outfeed_thunk": _Row("kOutfeed", ("source_slices",)),
    # collectives
    "all_gather_thunk": _collective("kAllGather"),
    "all_reduce_thunk": _collective("kAllReduce"),
    "reduce_scatter_thunk": _collective("kReduceScatter"),
    "all_to_all_thunk": _collective("kAllToAll"),
    "ragged_all_to_all_thunk": _collective("kRaggedAllToAll"),
    "collective_permute_thunk": _collective("kCollectivePermute"),
    "collective_broadcast_thunk": _collective("kCollectiveBroadcast"),
    "collective_reduce_thunk": _collective("kCollectiveReduce"),
    "collective_kernel_thunk": _collective("kCollectiveKernel"),
    "send_thunk": _collective("kSend", "buffer"),
    "recv_thunk": _collective("kRecv", "buffer"),
    "collective_group_thunk": _Row("kGroup", nested=("thunks",), info=lambda _: CollectiveInfo("GROUP")),
}
