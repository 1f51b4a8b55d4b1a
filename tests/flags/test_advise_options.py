from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog, Diagnostic, check_compiler_options
from xla_flags.advise_options import advise_options

NEW = Catalog.for_jaxlib("0.12.0.1")


def advised(options: dict[Any, Any], catalog: Catalog = NEW) -> tuple[Diagnostic, ...]:
    return advise_options(check_compiler_options(options, catalog), options)


@pytest.mark.parametrize(
    ("option", "value", "code", "suggestion"),
    [
        # B32
        ("--xla_gpu_autotune_level", 2, "unknown-option", "'xla_gpu_autotune_level': 2"),
        ("xla_gpu_triton_gemm_any", "yes", "bad-option-value", "'xla_gpu_triton_gemm_any': True"),
        ("xla_gpu_triton_gemm_any", 1, "bad-option-value", "'xla_gpu_triton_gemm_any': True"),
        ("xla_gpu_triton_gemm_any", "false", "bad-option-value", "'xla_gpu_triton_gemm_any': False"),
        ("xla_gpu_autotune_levl", 2, "unknown-option", "'xla_gpu_autotune_level': 2"),
        ("xla_gpu_autotune_level", "two", "bad-option-value", None),
        ("xla_gpu_autotune_level", 2.0, "bad-option-value", "'xla_gpu_autotune_level': 2"),
        ("xla_gpu_detect_nan", "fail", "bad-option-value", "'xla_gpu_detect_nan': 'DETECTION_MODE_FAIL'"),
        (
            "xla_gpu_command_buffer_update_mode",
            "NEVER_UPDATE",
            "bad-option-value",
            "'xla_gpu_command_buffer_update_mode': 'SKIP_TEMP'",
        ),
        (
            "xla_gpu_enable_command_buffer",
            "fusion, while",
            "bad-option-value",
            "'xla_gpu_enable_command_buffer': 'FUSION,WHILE'",
        ),
        (
            "xla_gpu_executable_terminate_timeout",
            5,
            "unknown-option",
            "'xla_gpu_executable_terminate_timeout_seconds': 5",
        ),
        ("xla_fuel", "a=1", "unknown-option", None),
        ("xla_gpu_use_inprocess_lld", True, "unknown-option", None),
        ("xla_backend_extra_options", "a=1", "bad-option-value", None),
        ("fdo_profile", 1, "bad-option", None),
        ("xla_dump_to", 3, "bad-option-value", "'xla_dump_to': '3'"),
    ],
)
def test_one_bad_option(option: str, value: object, code: str, suggestion: str | None) -> None:
    (found,) = advised({"xla_gpu_autotune_gemm_rtol": 0.5, option: value})
    assert (found.code, found.suggestion) == (code, suggestion)


def test_what_passes_gets_no_remark() -> None:
    assert advised({"xla_gpu_autotune_level": 2}) == ()


def test_what_cannot_be_an_option() -> None:
    (found,) = advised({"xla_gpu_autotune_level": [1]})
    assert "list" in found.message
    (found,) = advised({3: 1})
    assert found.code == "bad-option"


@given(
    st.dictionaries(
        st.sampled_from(["xla_gpu_autotune_level", "xla_dump_to", "xla_gpu_detect_nan", "xla_x", "--xla"]),
        st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.none()),
        max_size=3,
    )
)  # fmt: skip
def test_there_is_a_remark_exactly_if_there_is_an_error(options: dict[str, Any]) -> None:
    result = check_compiler_options(options, NEW)
    assert (advise_options(result, options) == ()) == result.ok
