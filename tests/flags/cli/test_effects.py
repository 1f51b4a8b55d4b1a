from __future__ import annotations

import pytest

from xla_flags import Catalog, parse
from xla_flags.cli.effects import cell, effect_rows, plain, print_effects

NEW = Catalog.for_jaxlib("0.12.0.1")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (3, "3"),
        (0.10000000149011612, "0.1"),
        (float("inf"), "inf"),
        ("", "(empty)"),
        (None, "-"),
        ([], "(none)"),
        (["A", "B"], "A, B"),
        ({"a": "1"}, "a=1"),
        ({}, "(none)"),
    ],
)
def test_values_for_people(value: object, text: str) -> None:
    assert plain(value) == text


def test_what_became_of_each_token() -> None:
    text = (
        "--xla_gpu_autotune_level=2 --xla_gpu_autotune_level=3 --xla_gpu_triton_gemm_any --bogus "
        "--xla_gpu_autotune_level=x --xla_cpu_use_thunk_runtime --xla_gpu_enable_fast_min_max"
    )
    result = parse(text, NEW)
    assert [cell(result, token) for token in result.tokens] == [
        *("replaced later", "ok", "ok", "unknown", "refused", "has no effect", "overruled by jaxlib"),
    ]


def test_a_flag_without_a_field() -> None:
    (row,) = effect_rows(parse("--xla_fuel=a=1", NEW))
    assert (row["value"], row["default"], row["differs"]) == (None, None, False)


def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    print_effects(parse("--xla_gpu_autotune_gemm_rtol=0.5", NEW))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        [],
        ["flag", "asked", "for", "in", "effect", "default"],
        ["xla_gpu_autotune_gemm_rtol", "0.5", "0.5", "0.1"],
    ]
    print_effects(parse("--bogus", NEW))
    assert capsys.readouterr().out == ""
