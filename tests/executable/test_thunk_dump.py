from __future__ import annotations

from jax_cmdbuf.executable.conversion import CommandBuffer, Conversion
from jax_cmdbuf.executable.thunk_dump import command_buffers_in_dump, grouping_differences
from jax_cmdbuf.executable.thunks import Thunk, ThunkKind

DUMP = """\
000: kCommandBuffer [source       | next=007 (1)]
    001: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1]
    006: kConditional  [prev=002 (1) | next=007 (1)]
      false_branch:
        003: kCustomKernel [source | sink] gemm_fusion grid: [32, 1, 1]
    002: kCustomKernel [source | sink] loop_add_fusion_1 grid: [32, 1, 1]
007: kConditional   [prev=000 (1) | next=000 (1)]
  true_branch:
    000: kCommandBuffer [source       | next=005 (1)]
        004: kCustomKernel [source | sink] loop_convert_fusion grid: [32, 1, 1]
    005: kFft           [prev=000 (1) | next=000 (1)] (no description)
000: kCommandBuffer [prev=007 (1) | sink        ]
    008: kCustomKernel [source | sink] input_multiply_reduce_fusion
"""


def conversion(*buffers: tuple[int, ...]) -> Conversion:
    def thunk(number: int) -> Thunk:
        return Thunk(ThunkKind("kCustomKernel"), number, f"fusion_{number}")

    return Conversion((), tuple(CommandBuffer(tuple(map(thunk, ids))) for ids in buffers))


def test_command_buffers_are_read_with_their_direct_children() -> None:
    assert command_buffers_in_dump(DUMP) == ((1, 6, 2), (4,), (8,))
    assert command_buffers_in_dump("") == ()


def test_equal_groupings_have_no_difference() -> None:
    assert grouping_differences(conversion((1, 6, 2), (4,), (8,)), DUMP) == ()
    assert grouping_differences(conversion(), None) == ()


def test_each_difference_is_a_sentence() -> None:
    assert grouping_differences(conversion((1, 6, 2), (4, 5), (8,)), DUMP) == (
        "predicted, but not in XLA's dump: thunks 4, 5",
        "in XLA's dump, but not predicted: thunks 4",
    )
    assert grouping_differences(conversion(tuple(range(1, 13))), None) == (
        "predicted, but not in XLA's dump: thunks 1, 2, 3, 4, 5, 6, 7, 8, … (12 in all)",
    )
