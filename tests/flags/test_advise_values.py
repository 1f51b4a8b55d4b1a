from __future__ import annotations

import pytest

from xla_flags import Catalog, Diagnostic, parse
from xla_flags.advise_values import MAX_LENGTH, advise_value
from xla_flags.subject import Subject

NEW = Catalog.for_jaxlib("0.12.0.1")
LEVEL = "--xla_gpu_autotune_level="
TIMEOUT = "--xla_gpu_execution_terminate_timeout="
UNROLL = "--xla_gpu_enable_while_loop_unrolling"
GEMM = "--xla_gpu_enable_triton_gemm="


def error(text: str, catalog: Catalog = NEW) -> Diagnostic:
    result = parse(text, catalog, files={})
    (bad,) = result.bad
    return advise_value(bad, Subject(result))


@pytest.mark.parametrize(
    ("text", "code", "suggestion"),
    [
        (f"{GEMM}yes", "bad-bool", "true"),
        (f"{GEMM}Off", "bad-bool", "false"),
        (f"{GEMM}", "bad-bool", f"{GEMM}true"),
        (f"{GEMM}fasle", "bad-bool", "false"),
        (f"{GEMM}' true '", "bad-value", f"{GEMM}true"),
        (f"{GEMM}true,", "bad-value", "true"),
        (f"{GEMM}“true”", "typographic", "true"),
        (f"{GEMM}'\"true\"'", "kept-quotes", f"{GEMM}true"),
        (f"{GEMM}=true", "bad-value", "true"),
        (f"{GEMM}$GEMM", "shell-variable", None),
        (f"{GEMM}perhaps", "bad-bool", None),
        (f"{LEVEL}0x3", "bad-number", "3"),
        (f"{LEVEL}1e3", "bad-number", "1000"),
        (f"{LEVEL}4.0", "bad-number", "4"),
        (f"{LEVEL}1_000", "bad-number", "1000"),
        (f"{LEVEL}99999999999", "out-of-range", None),
        (f"{LEVEL}true", "bad-number", None),
        ("--xla_gpu_experimental_max_unroll_factor=0", "out-of-range", "1"),
        ("--xla_gpu_autotune_gemm_rtol=0,5", "bad-number", "0.5"),
        ("--xla_gpu_autotune_gemm_rtol=5%", "bad-number", "0.05"),
        (f"{TIMEOUT}5", "bad-duration", "5s"),
        (f"{TIMEOUT}'5 Min'", "bad-duration", f"{TIMEOUT}5m"),
        ("--xla_gpu_detect_nan=DETECTION_MODE_FAIL", "bad-enum", "fail"),
        ("--xla_gpu_detect_nan=FAIL", "enum-case", "fail"),
        ("--xla_gpu_detect_nan=2", "enum-number", "fail"),
        ("--xla_gpu_pipeline_all_reduce=true", "bad-enum", "on"),
        ("--xla_gpu_pipeline_all_reduce=COLLECTIVE_PIPELINING_MODE_OFF", "bad-enum", "off"),
        ("--xla_gpu_enable_libnvptxcompiler=true", "not-built-in", "false"),
        (f"{UNROLL}=double_buffer", "bad-enum", "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"),
        ("--xla_gpu_command_buffer_scheduling_mode=CONCURENT", "bad-enum", "CONCURRENT"),
        ("--xla_gpu_disable_async_collectives=all_reduce", "bad-list", "ALLREDUCE"),
        ("--xla_gpu_disable_async_collectives=all", "bad-list", "ALLCOLLECTIVES"),
        ("--xla_gpu_enable_command_buffer=FUSION,WHIL", "bad-list", "FUSION,WHILE"),
        ("--xla_gpu_enable_command_buffer=+1", "enum-number", "+FUSION"),
        ("--xla_gpu_enable_command_buffer=FUSION;WHILE", "bad-list", "FUSION,WHILE"),
        ("--xla_disable_hlo_passes=a:b", "bad-list", None),
        ("--xla_fuel=a:3", "bad-value", "a=3"),
        ("--xla_gpu_experimental_thunk_buffer_debug_filter_by_thunk_id_ranges=5-3", "bad-list", "3:5"),
        ("--xla_enable_nccl_symmetric_buffers_for_collectives=all:", "bad-list", "all"),
        (f"{GEMM}true;{LEVEL}2", "glued-flags", f"{GEMM}true {LEVEL}2"),
    ],
)  # fmt: skip
def test_one_bad_value(text: str, code: str, suggestion: str | None) -> None:
    found = error(text)
    assert (found.code, found.suggestion) == (code, suggestion)
    if suggestion is not None and found.span is not None:
        fixed = text[: found.span.start] + suggestion + text[found.span.end :]
        assert parse(fixed, NEW).ok


def test_a_suggestion_is_for_this_release() -> None:
    old = Catalog.for_jaxlib("0.10.2")
    found = error("--xla_gpu_detect_nan=dump", old)
    assert found.suggestion is None
    assert found.hint == "dump is accepted by jaxlib 0.11.2, 0.12.0.1"


def test_a_long_value_is_not_guessed_at() -> None:
    found = error(LEVEL + "9" * (MAX_LENGTH + 1))
    assert (found.code, found.suggestion) == ("bad-value", None)
