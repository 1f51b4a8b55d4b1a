from __future__ import annotations

import pytest

from xla_flags import Catalog, parse
from xla_flags.repairs_lists import LIST_REPAIRERS
from xla_flags.spelling import flag_text

NEW = Catalog.for_jaxlib("0.12.0.1")


def repaired(name: str, value: str) -> str | None:
    flag = NEW.flags[name]
    guesses = [each.value for each in LIST_REPAIRERS[flag.kind](flag, value)]
    return next((each for each in guesses if each is not None and parse(flag_text(name, each), NEW).ok), None)


@pytest.mark.parametrize(
    ("name", "value", "fixed"),
    [
        ("xla_gpu_enable_command_buffer", "[FUSION, CUBLAS]", "FUSION,CUBLAS"),
        ("xla_gpu_enable_command_buffer", "1,2", "FUSION,CUBLAS"),
        ("xla_gpu_enable_command_buffer", "-fusion,while", "-fusion,+while"),
        ("xla_gpu_enable_command_buffer", "ADDRESS_COMPUTATION_FUSION", "DYNAMIC_SLICE_FUSION"),
        ("xla_gpu_enable_command_buffer", "qqqq", None),
        ("xla_cpu_experimental_xnn_fusion_type", "dots", "LIBRARY_FUSION_TYPE_DOT"),
        ("xla_gpu_disable_async_collectives", "all-reduce, AllGather", "ALLREDUCE,ALLGATHER"),
        ("xla_gpu_disable_async_collectives", "ALLREDUCE,", "ALLREDUCE"),
        ("xla_gpu_disable_async_collectives", "", None),
        ("xla_disable_hlo_passes", "a:1:", "a:1"),
        ("xla_fuel", "a: 1", "a=1"),
        ("xla_gpu_experimental_thunk_buffer_debug_filter_by_thunk_id_ranges", "1-2, 7..4", "1:2,4:7"),
    ],
)
def test_lists(name: str, value: str, fixed: str | None) -> None:
    assert repaired(name, value) == fixed


def test_all_members_are_named_but_sentinels() -> None:
    fixed = repaired("xla_gpu_enable_command_buffer", "ALL")
    assert fixed is not None
    assert "INVALID" not in fixed
    assert {"FUSION", "WHILE"} <= {*fixed.split(",")}


@pytest.mark.parametrize(
    "value", ["", ",", "+", "-,+", "é,é", "::", "=", "@", "1:2:3", "9" * 40, "\x00", "[", "--"]
)
def test_no_text_is_too_odd(value: str) -> None:
    for flag in NEW.flags.values():
        repairer = LIST_REPAIRERS.get(flag.kind)
        if repairer is not None:
            assert list(repairer(flag, value))
