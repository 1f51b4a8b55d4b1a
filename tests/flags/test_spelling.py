from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog, parse, tokenize
from xla_flags.spelling import canonical_value, flag_text, join, python_value_text, quoted, token_text

NEW = Catalog.for_jaxlib("0.12.0.1")
NO_NUL = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=30)


@given(NO_NUL)
def test_a_written_value_is_read_back(value: str) -> None:
    tokens = tokenize(flag_text("xla_dump_to", value))
    assert [token.text for token in tokens.tokens] == [f"--xla_dump_to={value}"]
    assert tokens.stopped_at is None


@given(st.text("-= \t\n'\"\\ax.", max_size=30))
def test_a_written_token_is_read_back(text: str) -> None:
    for token in tokenize(text).tokens:
        again = tokenize(token_text(token.text))
        assert [each.text for each in again.tokens] == [token.text]
        assert again.stopped_at is None


@given(st.lists(st.tuples(st.sampled_from(["xla_a", "b-c"]), NO_NUL), max_size=5))
def test_several_stay_apart(flags: list[tuple[str, str]]) -> None:
    tokens = tokenize(join(flag_text(name, value) for name, value in flags))
    assert [token.text for token in tokens.tokens] == [f"--{name}={value}" for name, value in flags]


def test_quotes_only_where_they_are_needed() -> None:
    assert quoted("") == ""
    assert quoted("a'b") == "a'b"
    assert quoted("'a") == '"\'a"'
    assert quoted("a b") == "'a b'"
    assert quoted('it\'s a \\ "b"') == '"it\'s a \\\\ \\"b\\""'


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("xla_gpu_triton_gemm_any", "TRUE", "true"),
        ("xla_gpu_triton_gemm_any", "0", "false"),
        ("xla_gpu_autotune_level", " +03 ", "3"),
        ("xla_gpu_autotune_gemm_rtol", "0x1P-1", "0.5"),
        ("xla_gpu_autotune_gemm_rtol", "1e400", "inf"),
        ("xla_gpu_enable_command_buffer", " fusion,, while ", "FUSION,WHILE"),
        ("xla_gpu_enable_command_buffer", ",", ","),
        ("xla_gpu_detect_nan", "fail", "fail"),
        ("xla_gpu_pipeline_all_reduce", "ON", "on"),
        ("xla_cpu_opt_preset", "cpu_opt_preset_default", "CPU_OPT_PRESET_DEFAULT"),
        ("xla_gpu_disable_async_collectives", "allreduce", "ALLREDUCE"),
        ("xla_cpu_max_isa", "avx2", "AVX2"),
        ("xla_dump_to", " X ", " X "),
        ("xla_gpu_autotune_level", "x", "x"),
    ],
)  # fmt: skip
def test_canonical_values(name: str, value: str, canonical: str) -> None:
    assert canonical_value(NEW.flags[name], value) == canonical


@given(st.sampled_from(sorted(NEW.flags)), st.text("0123456789+-., aeftrusx'\"AFUSION_", max_size=12))
def test_a_canonical_value_means_the_same(name: str, value: str) -> None:
    before = parse(flag_text(name, value), NEW)
    after = parse(flag_text(name, canonical_value(NEW.flags[name], value)), NEW)
    assert (before.outcome, repr(before.plain)) == (after.outcome, repr(after.plain))


def test_python_values() -> None:
    assert python_value_text(True) == "true"
    assert python_value_text(3) == "3"
    assert python_value_text(0.5) == "0.5"
    assert python_value_text(["+A", "-B"]) == "+A,-B"
    assert python_value_text({"a": 1, "b": False}) == "a=1,b=false"
    assert python_value_text(NEW.flags["xla_gpu_shape_checks"].enum.python_class("RUNTIME")) == "RUNTIME"  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="no value of type object"):
        python_value_text(object())
