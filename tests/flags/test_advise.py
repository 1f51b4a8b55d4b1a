"""Reports of real users, each as the text they had: what is said, and what they should have written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog, Diagnostic, ParseResult, Severity, fixed_text, parse
from xla_flags.advise import MAX_REMARKS, advise, fixed_for_all
from xla_flags.schema import FlagKind
from xla_flags.spelling import flag_text

NEW, MIDDLE, OLD = (Catalog.for_jaxlib(version) for version in ("0.12.0.1", "0.11.2", "0.10.2"))
GEMM = "--xla_gpu_enable_triton_gemm=false"
LEVEL = "--xla_gpu_autotune_level"
LIST = "--xla_gpu_enable_command_buffer"
MODE = "--xla_gpu_command_buffer_update_mode"


def advised(text: str, catalog: Catalog = NEW) -> tuple[ParseResult, tuple[Diagnostic, ...]]:
    result = parse(text, catalog, files={})
    return result, advise(result)


def shown(result: ParseResult, diagnostic: Diagnostic) -> str | None:
    """The text under the carets."""
    return None if diagnostic.span is None else result.source.text[slice(*diagnostic.span)]


@pytest.mark.parametrize(
    ("text", "code", "under", "fixed"),
    [
        # B01, B03: async collectives are no flags any more, and asynchronous anyway.
        (f"--xla_gpu_enable_async_all_reduce=true {GEMM}", "removed-flag", None, GEMM),
        (
            "--xla_gpu_enable_async_reduce_scatter=false",
            "removed-flag",
            None,
            "--xla_gpu_disable_async_collectives=REDUCESCATTER",
        ),
        # B02, B09
        ("--xla_gpu_enable_triton_softmax_fusion=true", "removed-flag", None, ""),
        # B04, B28
        ("--xla_gpu_graph_level=0", "removed-flag", None, f"{LIST}="),
        ("--xla_gpu_graph_level=2", "removed-flag", None, f"{LIST}=FUSION,CUBLAS"),
        # B05
        ("--xla_gpu_enable_triton_gemm-false", "dash-for-equals", None, GEMM),
        # B07
        ("--xla_gpu_graph_min_graph_size", "missing-equals", None, None),
        (
            "--xla_gpu_graph_min_graph_size 3",
            "missing-equals",
            "--xla_gpu_graph_min_graph_size 3",
            "--xla_gpu_graph_min_graph_size=3",
        ),
        # B08
        (
            "--xla_gpu_enable_address_computation_fusion=false",
            "removed-flag",
            None,
            "--xla_gpu_enable_dynamic_slice_fusion=false",
        ),
        # B10
        (f"{MODE}=NEVER_UPDATE", "renamed-value", "NEVER_UPDATE", f"{MODE}=SKIP_TEMP"),
        (f"{MODE}=skip_temp", "enum-case", "skip_temp", f"{MODE}=SKIP_TEMP"),
        (f"{MODE}=1", "enum-number", "1", f"{MODE}=SKIP_TEMP"),
        # B14
        ("${XLA_BASE}", "shell-variable", None, None),
        (f"${{XLA_BASE}} {GEMM}", "shell-variable", None, GEMM),
        # B15
        (f'"{GEMM} --xla_dump_to=/x"', "outer-quotes", None, f"{GEMM} --xla_dump_to=/x"),
        (f"'{GEMM}'", "outer-quotes", None, GEMM),
        # B22
        ("--xla_tpu_enable_data_parallel_all_reduce_opt=1", "wrong-variable", None, ""),
        ("--tf_xla_auto_jit=2", "wrong-variable", None, ""),
        ("--jax_enable_x64=true", "wrong-variable", None, ""),
        # B26
        (f"{LIST}=FUSION,+WHILE", "list-signs", "FUSION,+WHILE", f"{LIST}=+FUSION,+WHILE"),
        (f"{LIST}=+FUSION,", "list-signs", "+FUSION,", f"{LIST}=+FUSION"),
        (f"{LIST}=none", "bad-list", f"{LIST}=none", f"{LIST}="),
        (f"{LIST}=0", "bad-list", f"{LIST}=0", f"{LIST}="),
        # Glued, dashed, cased.
        (f"{LEVEL}=3--xla_dump_to=/x", "glued-flags", None, f"{LEVEL}=3 --xla_dump_to=/x"),
        (f"–{GEMM[2:]}", "typographic", None, GEMM),
        (f"-{GEMM[2:]}", "dashes", None, GEMM),
        (GEMM[2:], "dashes", None, GEMM),
        ("--XLA_GPU_AUTOTUNE_LEVEL=2", "flag-spelling", None, "--xla_gpu_autotune_level=2"),
        ("--noxla_gpu_enable_triton_gemm", "negated-flag", None, GEMM),
        ("--xla_gpu_autotune_levl=2", "unknown-flag", None, "--xla_gpu_autotune_level=2"),
        ("--help", "help", "--help", ""),
        (f"XLA_FLAGS={GEMM}", "assignment-kept", None, GEMM),
    ],
)  # fmt: skip
def test_what_a_failing_text_is_told(text: str, code: str, under: str | None, fixed: str | None) -> None:
    result, remarks = advised(text)
    assert not result.ok
    error = next(each for each in remarks if each.severity is Severity.ERROR)
    assert error.code == code
    if under is not None:
        assert shown(result, error) == under
    assert fixed_text(result) == fixed


@pytest.mark.parametrize(
    ("text", "code", "under", "fixed"),
    [
        # B14, B25, B26: reading stops, and nobody says so.
        (f"{GEMM} $EXTRA --xla_dump_to=/x", "shell-variable", "$EXTRA", f"{GEMM} --xla_dump_to=/x"),
        (f"{GEMM} \\\n--xla_dump_to=/x", "backslash", "\\", f"{GEMM}\n--xla_dump_to=/x"),
        (f"{GEMM} # fast\n--xla_dump_to=/x", "comment", "# fast", f"{GEMM}\n--xla_dump_to=/x"),
        (
            f"{LIST}=FUSION, CUBLAS --xla_dump_to=/x",
            "blank-in-list",
            f"{LIST}=FUSION, CUBLAS",
            f"{LIST}=FUSION,CUBLAS --xla_dump_to=/x",
        ),
        (f"{GEMM} stray", "stray-text", "stray", GEMM),
        (f"{GEMM} —xla_dump_to=/x", "typographic", "—xla_dump_to=/x", f"{GEMM} --xla_dump_to=/x"),
        ("--xla_gpu_triton_gemm_any false", "missing-equals", None, "--xla_gpu_triton_gemm_any=false"),
        # B30
        (
            "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_FULL_UNROLL",
            "known-bad",
            "WHILE_LOOP_UNROLLING_FULL_UNROLL",
            "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_FULL_UNROLL",
        ),
    ],
)
def test_what_a_text_that_works_is_warned_of(text: str, code: str, under: str | None, fixed: str) -> None:
    result, remarks = advised(text)
    assert result.ok
    warning = next(each for each in remarks if each.severity is Severity.WARNING)
    assert warning.code == code
    if under is not None:
        assert shown(result, warning) == under
    assert fixed_text(result) == fixed


def test_flags_that_change_nothing_are_noted() -> None:  # B31
    _, remarks = advised("--xla_gpu_triton_gemm_any=True")
    assert [(each.severity, each.code, each.suggestion) for each in remarks] == [
        (Severity.NOTE, "already-default", "")
    ]


def test_repeats_and_precedence() -> None:  # B17, B18
    for text, codes, value in (
        (f"{LIST}=+WHILE {LIST}=", ["overridden"], ()),
        (f"{LIST}= {LIST}=+WHILE", [], ("WHILE",)),
        (f"{GEMM} --xla_gpu_enable_triton_gemm=true", ["overridden", "already-default"], True),
    ):
        result, remarks = advised(text)
        assert [each.code for each in remarks] == codes
        assert result.values[text.partition("=")[0][2:]] == value


def test_quotes_after_equals_are_no_mistake() -> None:  # B16
    result, remarks = advised(f"{LIST}=''")
    assert (result.values, remarks) == ({"xla_gpu_enable_command_buffer": ()}, ())


def test_a_verdict_names_releases() -> None:  # B01, B10
    _, (error,) = advised("--xla_gpu_graph_level=0")
    assert "0.4.20 to 0.7.0" in error.message
    _, (error,) = advised(f"{MODE}=SKIP_TEMP", OLD)
    assert error.suggestion == "NEVER_UPDATE"
    assert error.hint == "SKIP_TEMP is accepted by jaxlib 0.11.2, 0.12.0.1"
    _, (error,) = advised("--xla_gpu_enable_pdl_launch=true", OLD)
    assert "later releases" in error.message


def test_one_text_for_several_jaxlibs() -> None:  # B06
    text = f"--xla_gpu_graph_level=0 --xla_gpu_experimental_enable_nvshmem {GEMM}"
    results = [parse(text, catalog) for catalog in (OLD, MIDDLE, NEW)]
    common = fixed_for_all(results)
    assert common == f"{LIST}= {GEMM}"
    assert all(parse(common, result.catalog).ok for result in results)
    assert fixed_for_all([parse(f"{MODE}=SKIP_TEMP", each) for each in (OLD, NEW)]) is None


def test_many_errors_are_counted_not_explained() -> None:
    _, remarks = advised("--bogus " * (MAX_REMARKS + 7))
    assert len(remarks) == MAX_REMARKS + 1
    assert remarks[-1].message.startswith("7 more")


def _sample(name: str, catalog: Catalog) -> str | None:
    """A good value of a flag other than its default, by its kind alone."""
    flag = catalog.flags[name]
    default = flag.field.default if flag.field is not None else None
    match flag.kind:
        case FlagKind.BOOL:
            return str(not default).lower()
        case FlagKind.INT32 | FlagKind.INT64 | FlagKind.FLOAT:
            return str(int(default) + 1) if default < 2**30 else "7"
        case FlagKind.STRING:
            return "some/where"
        case FlagKind.ENUM | FlagKind.ENUM_ANY_CASE:
            assert flag.enum is not None
            return next((each for each in flag.enum.numbers if each != default), None)
        case FlagKind.WORD | FlagKind.WORD_ANY_CASE:
            return next((word for word, member in flag.words.items() if member != default), None)
        case FlagKind.DURATION:
            return "7s"
    return None


SAMPLES = {
    catalog.version: [
        flag_text(name, value)
        for name in catalog.flags
        if (value := _sample(name, catalog)) is not None
        and not (catalog.flags[name].field is not None and catalog.flags[name].field.forced)  # type: ignore[union-attr]
    ]
    for catalog in (NEW, OLD)
}


@given(st.sampled_from([NEW, OLD]), st.data())
def test_nothing_is_said_about_flags_that_are_right(catalog: Catalog, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.sampled_from(SAMPLES[catalog.version]), max_size=12, unique=True))
    known_bad = re.compile("FULL_UNROLL")
    result = parse(" ".join(texts), catalog)
    assert result.ok
    assert [each for each in advise(result) if not known_bad.search(" ".join(texts))] == []


PIECES = st.sampled_from(
    [
        *("--", "-", " ", "=", "\n", "'", '"', "\\", "#", ",", "+", "$X", "${Y}", "–", "“", "\ufeff", "\x00"),
        *("é", "true", "1", "x", "xla_", "FUSION", "xla_gpu_autotune_level", "NEVER_UPDATE", "XLA_FLAGS="),
        *("--xla_dump_to=", "--bogus", "--xla_gpu_graph_level=1", "--help", "-xla_", GEMM, LIST, MODE),
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join), st.sampled_from([NEW, OLD]))
def test_advice_agrees_with_the_verdict(text: str, catalog: Catalog) -> None:
    result = parse(text, catalog, files={})
    remarks = advise(result)
    assert any(each.severity is Severity.ERROR for each in remarks) == (not result.ok)
    if result.ignored is not None:
        assert any(each.severity is Severity.WARNING for each in remarks)
    length = len(result.source.text)
    for each in remarks:
        assert each.message
        assert each.span is None or 0 <= each.span.start < each.span.end <= length
    fixed = fixed_text(result)
    if fixed is not None:
        again = parse(fixed, catalog, files={})
        assert again.ok
        assert again.ignored is None


@given(st.text(max_size=60))
def test_any_text_gets_advice(text: str) -> None:
    result = parse("--xla_dump_to" + text, NEW, files={})
    assert any(each.severity is Severity.ERROR for each in advise(result)) == (not result.ok)
