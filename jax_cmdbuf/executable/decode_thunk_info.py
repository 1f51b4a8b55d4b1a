"""The facts of each thunk kind, from its message; one function per kind.

Mirrors ``xla/backends/gpu/runtime/thunk.proto``. Invariant: a fact that the message's release does not have
gets the value XLA would assume, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from jax_cmdbuf.executable.thunks import (
    AsyncInfo,
    CollectiveInfo,
    CopyDirection,
    CopyInfo,
    CustomCallInfo,
    DynamicSliceFusionInfo,
    KernelInfo,
    TensorMap,
    ThunkInfo,
    WhileInfo,
)

__all__ = [
    "async_done",
    "async_start",
    "collective",
    "copy",
    "custom_call",
    "custom_kernel",
    "dynamic_slice",
    "dynamic_slice_fusion",
    "kernel",
    "while_loop",
]

# Bits of the element types whose name does not end the digits with them; none is a whole number of bytes.
_ODD_BITS = {"PRED": 1, "C64": 64, "C128": 128, "TOKEN": 0, "TUPLE": 0, "OPAQUE_TYPE": 0, "BUFFER": 0}


def _coordinates(dim: Any) -> tuple[int, int, int]:
    at = dim.coordinates
    return at.x, at.y, at.z


def _cluster(holder: Any) -> tuple[int, int, int] | None:
    return _coordinates(holder.cluster_dim) if holder.HasField("cluster_dim") else None


def custom_kernel(impl: Any) -> KernelInfo:
    """A kernel that carries its own machine code."""
    custom = impl.custom_kernel
    spec = custom.kernel_spec
    return KernelInfo(
        name=spec.kernel_name or custom.name,
        grid=_coordinates(custom.block_dims),
        block=_coordinates(custom.thread_dims),
        cluster=_cluster(custom),
        shared_memory_bytes=custom.shared_memory_bytes,
        cubin=spec.cubin.data if spec.HasField("cubin") else None,
        ptx=spec.ptx.data if spec.HasField("ptx") else None,
        tensor_maps=_tensor_maps(impl),
        message=impl,
    )


def kernel(impl: Any) -> KernelInfo:
    """A kernel of the module's own binary."""
    dimensions = impl.launch_dimensions
    return KernelInfo(
        name=impl.kernel_name,
        grid=_coordinates(dimensions.block_counts),
        block=_coordinates(dimensions.thread_counts_per_block),
        cluster=_cluster(impl),
        shared_memory_bytes=impl.shmem_bytes,
        tensor_maps=_tensor_maps(impl),
        message=impl,
    )


def _tensor_maps(impl: Any) -> tuple[tuple[int, TensorMap], ...]:
    found = impl.tma_metadata.arg_index_to_tma_info
    return tuple((index, _tensor_map(found[index])) for index in sorted(found))


def _tensor_map(info: Any) -> TensorMap:
    return TensorMap(
        info.element_size,
        tuple(info.global_dims),
        tuple(info.global_strides),
        tuple(info.box_dims),
        tuple(info.element_strides),
        info.interleave,
        info.swizzle,
        info.l2_promotion,
        info.float_oob_fill,
    )


def copy(direction: CopyDirection) -> Callable[[Any], CopyInfo]:
    """A copy; three of the four messages wrap the plain one."""

    def read(impl: Any) -> CopyInfo:
        plain = impl if direction is CopyDirection.UNSPECIFIED else impl.copy_thunk
        return CopyInfo(direction, plain.mem_size)

    return read


def while_loop(impl: Any) -> WhileInfo:
    """A loop; the trip count is there only if XLA could tell it."""
    return WhileInfo(impl.trip_count if impl.HasField("trip_count") else None)


def async_start(impl: Any) -> AsyncInfo:
    """An async region's begin, with the stream id that is set."""
    field: str | None = impl.WhichOneof("execution_stream_id")
    stream = (field.removesuffix("_stream_id"), getattr(impl, field)) if field else None
    return AsyncInfo(impl.async_execution_id, stream)


def async_done(impl: Any) -> AsyncInfo:
    """An async region's end."""
    return AsyncInfo(impl.async_execution_id)


def custom_call(impl: Any) -> CustomCallInfo:
    """A call of an FFI target."""
    return CustomCallInfo(impl.target_name)


def dynamic_slice_fusion(impl: Any) -> DynamicSliceFusionInfo:
    """A dynamic slice fusion; loop-dependent if an offset moves with a loop's index."""
    configs = [entry.slice_config for entry in impl.parameters if entry.HasField("slice_config")]
    configs += [entry.update_config for entry in impl.results if entry.HasField("update_config")]
    return DynamicSliceFusionInfo(impl.verify_offsets, any(map(_moves_with_loop, configs)))


def _moves_with_loop(config: Any) -> bool:
    if not config.HasField("loop_index"):
        return False
    form = config.WhichOneof("offsets") if "offsets" in config.DESCRIPTOR.oneofs_by_name else None
    if form == "linear":
        return bool(config.linear.byte_stride)
    return form == "table" or bool(config.byte_stride)


def dynamic_slice(impl: Any) -> DynamicSliceFusionInfo:
    """jaxlib 0.10's form: loop-dependent if some offset is a function of the loop's induction variable."""
    return DynamicSliceFusionInfo(
        loop_dependent=impl.HasField("offset_as_function_of_indvar_modules_metadata")
    )


def collective(kind: str) -> Callable[[Any], ThunkInfo]:
    """A collective; its filter name is its kind's in capitals."""
    op = kind.removeprefix("k").upper()

    def read(impl: Any) -> CollectiveInfo:
        config = impl.collective_config
        types = config.DESCRIPTOR.fields_by_name["operand_element_type"].enum_type.values_by_number
        return CollectiveInfo(
            op=op,
            replica_groups=tuple(tuple(group.replica_ids) for group in config.replica_groups),
            one_shot_kernel_enabled=getattr(impl, "one_shot_kernel_enabled", False),
            element_bits=tuple(
                _bits(types[number].name if number in types else "") for number in config.operand_element_type
            ),
        )

    return read


def _bits(element_type: str) -> int:
    """Bits of a ``PrimitiveType``: the first number in its name ("F8E4M3FN": 8, "BF16": 16)."""
    if element_type in _ODD_BITS:
        return _ODD_BITS[element_type]
    digits = re.search(r"\d+", element_type)
    return int(digits.group()) if digits else 0
