from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

from jax_cmdbuf.executable import decode_thunks as module
from jax_cmdbuf.executable.decode_thunks import decode_thunks
from jax_cmdbuf.executable.descriptors import installed_schema
from jax_cmdbuf.executable.thunks import Thunk


def proto(text: str) -> Any:
    return text_format.Parse(text, installed_schema().message("xla.gpu.ThunkProto")())


def decode(text: str) -> Thunk:
    (thunk,) = decode_thunks([proto("thunk_info { thunk_id: 3 profile_annotation: 'x' } " + text)])
    assert (thunk.id, thunk.name) == (3, "x")
    return thunk


def uses(thunk: Thunk) -> str:
    """Reads and writes by allocation, for example "r1 w2"."""
    return " ".join(("w" if use.is_write else "r") + str(use.slice.allocation) for use in thunk.own_uses)


def shaped(allocation: int) -> str:
    return f"{{ slice {{ buffer_allocation_index: {allocation} size: 4 }} }}"


def bare(allocation: int) -> str:
    return f"{{ buffer_allocation_index: {allocation} size: 4 }}"


def collective(field: str = "buffers") -> str:
    return f"{field} {{ source_buffer {shaped(1)} destination_buffer {shaped(2)} }}"


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (
            f"kernel_thunk {{ args {bare(1)} args {bare(2)} written: false written: true }}",
            "kKernel",
            "r1 w2",
        ),
        (
            f"custom_kernel_thunk {{ args {shaped(1)} args {shaped(2)} written: true }}",
            "kCustomKernel",
            "w1 r2",
        ),
        (
            f"device_to_device_copy_thunk {{ copy_thunk {{ source_buffer {shaped(1)} "
            f"destination_buffer {shaped(2)} }} }}",
            "kCopy",
            "r1 w2",
        ),
        (f"copy_thunk {{ source_buffer {shaped(1)} destination_buffer {shaped(2)} }}", "kCopy", "r1 w2"),
        (f"memzero_thunk {{ dest_buffer {shaped(1)} }}", "kMemzero", "w1"),
        (f"memset32bit_value_thunk {{ dest_buffer {bare(1)} }}", "kMemset32BitValue", "w1"),
        (f"replica_id_thunk {{ dest_buffer {bare(1)} }}", "kReplicaId", "w1"),
        (f"rng_seed_thunk {{ dest_buffer {bare(0)} }}", "kRngSeed", "w0"),
        (
            f"gemm_thunk {{ lhs_buffer {bare(1)} rhs_buffer {bare(2)} output_buffer {bare(3)} }}",
            "kGemm",
            "r1 r2 w3",
        ),
        (
            f"cublas_lt_matmul_thunk {{ a {shaped(1)} b {shaped(2)} c {shaped(3)} d {shaped(4)} "
            f"bias {shaped(5)} aux {shaped(6)} a_scale {shaped(7)} d_amax {shaped(8)} workspace {shaped(9)} "
            f"group_sizes {shaped(10)} }}",
            "kCublasLtMatmul",
            "r1 r2 r3 r10 r5 r7 w4 w6 w8 w9",
        ),
        (
            f"cudnn_thunk {{ args {shaped(1)} args {shaped(2)} output_args: false output_args: true }}",
            "kCuDnn",
            "r1 w2",
        ),
        (
            f"convolution_thunk {{ operand_buffers {shaped(1)} operand_buffers {shaped(2)} "
            f"result_buffers {shaped(3)} scratch_buffer {bare(4)} }}",
            "kConvolution",
            "r1 r2 w3 w4",
        ),
        (
            f"convolution_reorder_thunk {{ filter_input {shaped(1)} filter_output {shaped(2)} "
            f"biases {{ bias_input {shaped(3)} bias_output {shaped(4)} }} }}",
            "kConvolutionReorder",
            "r1 r3 w2 w4",
        ),
        (f"fft_thunk {{ input_buffer {bare(1)} output_buffer {bare(2)} }}", "kFft", "r1 w2"),
        (
            f"norm_thunk {{ x {bare(1)} scale {bare(2)} y_or_dx {bare(3)} scratch {bare(4)} }}",
            "kNorm",
            "r1 r2 w3 w4",
        ),
        (
            f"triangular_solve_thunk {{ a_buffer {shaped(1)} b_buffer {shaped(2)} temp_buffer {shaped(3)} }}",
            "kTriangularSolve",
            "r1 w2 w3",
        ),
        (f"select_k_thunk {{ args {bare(1)} args {bare(2)} args {bare(3)} }}", "kSelectK", "r1 w2 w3"),
        (
            f"custom_call_thunk {{ operands {{ shaped_slice {shaped(1)} }} operands {{ }} "
            f"results {{ shaped_slice {shaped(2)} }} }}",
            "kCustomCall",
            "r1 w2",
        ),
        (
            f"host_execute_start_thunk {{ args {shaped(1)} results {shaped(2)} }}",
            "kHostExecuteStart",
            "r1 w2",
        ),
        (f"host_send_thunk {{ buffer {bare(1)} }}", "kHostSend", "r1"),
        (f"host_recv_thunk {{ buffer {bare(1)} }}", "kHostRecv", "w1"),
        (f"infeed_thunk {{ dest_slices {shaped(1)} }}", "kInfeed", "w1"),
        (f"outfeed_thunk {{ source_slices {shaped(1)} }}", "kOutfeed", "r1"),
        (f"all_reduce_thunk {{ {collective()} }}", "kAllReduce", "r1 w2"),
        (f"collective_kernel_thunk {{ {collective()} }}", "kCollectiveKernel", "r1 w2"),
        (f"send_thunk {{ {collective('buffer')} }}", "kSend", "r1 w2"),
        (
            f"dynamic_slice_fusion_thunk {{ parameter_buffers {bare(1)} parameter_buffers {bare(2)} "
            f"parameters {{ parameter_number: 1 }} result_buffers {bare(3)} results {{ }} "
            f"embedded_thunks {{ thunks {{ memzero_thunk {{ dest_buffer {shaped(99)} }} }} }} }}",
            "kDynamicSliceFusion",
            "r2 w3",
        ),
        (f"dynamic_slice_thunk {{ arguments {{ slice {bare(1)} }} arguments {{ }} }}", "kDynamicSlice", "w1"),
    ],
)
def test_kinds_and_uses(text: str, kind: str, expected: str) -> None:
    thunk = decode(text)
    assert thunk.kind == kind
    assert uses(thunk) == expected


def test_every_kind_of_the_schema_has_a_row() -> None:
    fields = installed_schema().message("xla.gpu.ThunkProto").DESCRIPTOR.oneofs_by_name["impl"].fields
    assert {field.name for field in fields} == set(module._ROWS)


def test_every_row_names_fields_that_some_release_has() -> None:
    impl = installed_schema().message("xla.gpu.ThunkProto").DESCRIPTOR.fields_by_name
    for field, row in module._ROWS.items():
        for path in (*row.reads, *row.writes, *row.nested):
            message = impl[field].message_type
            for step in path.split("."):
                assert step in message.fields_by_name, (field, path)
                message = message.fields_by_name[step].message_type


@pytest.mark.parametrize(
    ("text", "kind", "lists"),
    [
        (
            "while_thunk { condition_thunk_sequence { thunks { } } "
            "body_thunk_sequence { thunks { } thunks { } } }",
            "kWhile",
            [1, 2],
        ),
        ("while_thunk { }", "kWhile", [0, 0]),
        ("conditional_thunk { branch_thunks { } branch_thunks { thunks { } } }", "kConditional", [0, 1]),
        ("sequential_thunk { thunks { } thunks { } }", "kSequential", [2]),
        ("async_start_thunk { thunks { thunks { } } }", "kAsyncStart", [1]),
        ("collective_group_thunk { thunks { } }", "kGroup", [1]),
        ("dynamic_slice_fusion_thunk { embedded_thunks { thunks { } } }", "kDynamicSliceFusion", [1]),
    ],
)
def test_nested_lists(text: str, kind: str, lists: list[int]) -> None:
    thunk = decode(text)
    assert thunk.kind == kind
    assert [len(nested) for nested in thunk.nested] == lists


def test_a_kind_without_a_row_stays_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(module._ROWS, "convolution_reorder_thunk")
    thunk = decode(f"convolution_reorder_thunk {{ filter_input {shaped(1)} filter_output {shaped(2)} }}")
    assert (thunk.kind, uses(thunk)) == ("kConvolutionReorder", "w1 w2")


def test_a_kind_that_the_schema_lacks_stays_visible() -> None:
    future = proto("thunk_info { thunk_id: 5 }")
    future.MergeFromString(b"\xa2\x3e\x00")  # field 996, an empty message
    (thunk,) = decode_thunks([future])
    assert (thunk.kind, thunk.id) == ("kUnknown996", 5)
    (empty,) = decode_thunks([proto("")])
    assert empty.kind == "kUnknown"


def test_a_missing_index_means_allocation_0() -> None:
    thunk = decode("custom_kernel_thunk { args { slice { size: 8 } } written: true }")
    assert uses(thunk) == "w0"
