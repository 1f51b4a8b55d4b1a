from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import text_format

from jax_cmdbuf.executable.decode_thunks import decode_thunks
from jax_cmdbuf.executable.descriptors import installed_schema
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.thunks import (
    AsyncInfo,
    CollectiveInfo,
    CopyDirection,
    CopyInfo,
    CustomCallInfo,
    DynamicSliceFusionInfo,
    KernelInfo,
    WhileInfo,
)


def info(text: str) -> Any:
    message = installed_schema().message("xla.gpu.ThunkProto")()
    (thunk,) = decode_thunks([text_format.Parse(text, message)])
    return thunk.info


DIM = "{ coordinates { x: 2 y: 3 z: 4 } }"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("while_thunk { trip_count: 0 }", WhileInfo(0)),
        ("while_thunk { }", WhileInfo(None)),
        (
            "async_start_thunk { async_execution_id: 9 communication_stream_id: 2 }",
            AsyncInfo(9, ("communication", 2)),
        ),
        ("async_start_thunk { computation_stream_id: 0 }", AsyncInfo(0, ("computation", 0))),
        ("async_start_thunk { memcpy_stream_id: 1 }", AsyncInfo(0, ("memcpy", 1))),
        ("async_start_thunk { }", AsyncInfo(0, None)),
        ("async_done_thunk { async_execution_id: 9 }", AsyncInfo(9)),
        ("custom_call_thunk { target_name: 'cb' }", CustomCallInfo("cb")),
        (
            "host_to_device_copy_thunk { copy_thunk { mem_size: 5 } }",
            CopyInfo(CopyDirection.HOST_TO_DEVICE, 5),
        ),
        ("copy_thunk { mem_size: 5 }", CopyInfo(CopyDirection.UNSPECIFIED, 5)),
        (
            "ragged_all_to_all_thunk { one_shot_kernel_enabled: true collective_config { "
            "replica_groups { replica_ids: 0 replica_ids: 1 } "
            "operand_element_type: F32 operand_element_type: PRED "
            "operand_element_type: F8E4M3FN operand_element_type: BF16 operand_element_type: S4 "
            "operand_element_type: C128 operand_element_type: TOKEN } }",
            CollectiveInfo("RAGGEDALLTOALL", ((0, 1),), True, (32, 1, 8, 16, 4, 128, 0)),
        ),
        ("collective_broadcast_thunk { }", CollectiveInfo("COLLECTIVEBROADCAST")),
        (
            "custom_kernel_thunk { custom_kernel { name: 'n' "
            "kernel_spec { kernel_name: 'k' cubin { data: 'c' } } "
            f"block_dims {DIM} thread_dims {DIM} cluster_dim {DIM} shared_memory_bytes: 7 }} }}",
            KernelInfo("k", (2, 3, 4), (2, 3, 4), (2, 3, 4), 7, b"c"),
        ),
        (
            f"kernel_thunk {{ kernel_name: 'k' launch_dimensions {{ block_counts {DIM} "
            f"thread_counts_per_block {DIM} }} shmem_bytes: 7 }}",
            KernelInfo("k", (2, 3, 4), (2, 3, 4), None, 7),
        ),
    ],
)
def test_facts_of_each_kind(text: str, expected: object) -> None:
    assert info(text) == expected


@pytest.mark.parametrize(
    ("config", "moves"),
    [
        ("", False),
        ("slice_config { }", False),
        ("slice_config { byte_stride: 4 }", False),
        ("slice_config { loop_index: 0 }", False),
        ("slice_config { loop_index: 0 byte_stride: 4 }", True),
        ("slice_config { loop_index: 0 linear { byte_stride: 4 } }", True),
        ("slice_config { loop_index: 0 linear { byte_offset: 4 } }", False),
        ("slice_config { loop_index: 0 table { offsets: 4 } }", True),
    ],
)
def test_slices_that_move_with_a_loop(config: str, moves: bool) -> None:
    parameters = f"dynamic_slice_fusion_thunk {{ parameters {{ }} parameters {{ {config} }} }}"
    assert info(parameters) == DynamicSliceFusionInfo(False, moves)
    update = config.replace("slice", "update")
    results = f"dynamic_slice_fusion_thunk {{ verify_offsets: true results {{ {update} }} }}"
    assert info(results) == DynamicSliceFusionInfo(True, moves)


def test_recorded_kernels_carry_their_code(read: Callable[[str], Executable]) -> None:
    kernels = [one.info for one in read("mlp_default").thunks if isinstance(one.info, KernelInfo)]
    assert len(kernels) == 7
    for kernel in kernels:
        assert kernel.cubin is not None
        assert kernel.cubin.startswith(b"\x7fELF")
        assert min(kernel.grid) >= 1
        assert kernel.message is not None
