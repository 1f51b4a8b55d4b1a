from __future__ import annotations

import pytest

from xla_flags import Catalog, Diagnostic, Severity, parse
from xla_flags.advise_names import advise_name
from xla_flags.subject import Subject

TIMEOUT = "--xla_gpu_executable_terminate_timeout"
NEW = Catalog.for_jaxlib("0.12.0.1")


def errors(text: str, catalog: Catalog = NEW) -> list[Diagnostic]:
    result = parse(text, catalog, files={})
    return [advise_name(token, Subject(result)) for token in result.unknown]


@pytest.mark.parametrize(
    ("text", "code", "suggestion"),
    [
        ("--xla_dump_to:/x", "dash-for-equals", "--xla_dump_to=/x"),
        ("--xla-dump-to=/x", "flag-spelling", "--xla_dump_to=/x"),
        ("---xla_dump_to=/x", "dashes", "--xla_dump_to=/x"),
        ("--no-xla_gpu_triton_gemm_any", "negated-flag", "--xla_gpu_triton_gemm_any=false"),
        ("--noxla_gpu_triton_gemm_any=false", "negated-flag", "--xla_gpu_triton_gemm_any=true"),
        ("--xla_dump_t=/x", "unknown-flag", "--xla_dump_to=/x"),
        ("--xla_gpu_level_autotune=2", "unknown-flag", "--xla_gpu_autotune_level=2"),
        (f"{TIMEOUT}_seconds=5", "field-not-flag", f"{TIMEOUT}=5"),
        ("--xla_gpu_unsupported_enable_triton_gemm", "field-not-flag", None),
        ("--xla_gpu_experimental_autotuner_cache_dir=/x", "field-not-flag", None),
        ("--xla_gpu_use_inprocess_lld=true", "other-release", ""),
        ("--megascale_x=1", "wrong-variable", ""),
        ("--xla_python_client_mem_fraction=.5", "wrong-variable", ""),
        ("--xla_a--xla_b", "glued-flags", "--xla_a --xla_b"),
        ("--$FLAG", "shell-variable", None),
        ("--xla_gpu_autotune_level", "missing-equals", None),
        ("--xla_dump_to–/x", "typographic", "--xla_dump_to-/x"),
        ("-", "unknown-flag", None),
        ("--=", "unknown-flag", None),
        ("--qqq", "unknown-flag", None),
    ],
)  # fmt: skip
def test_one_unknown_token(text: str, code: str, suggestion: str | None) -> None:
    (error,) = errors(text)
    assert (error.severity, error.code, error.suggestion) == (Severity.ERROR, code, suggestion)
    assert error.span == (0, len(text))


def test_a_misspelt_flag_of_another_release_is_named() -> None:
    (error,) = errors("--xla_gpu_graph_lev=0")
    assert error.suggestion is None
    assert error.hint == "similar: xla_gpu_graph_level, a flag of jaxlib 0.4.20 to 0.7.0"


def test_what_follows_two_dashes_is_not_blamed() -> None:
    codes = [each.code for each in errors("-- --xla_dump_to=/x --bogus")]
    assert codes == ["double-dash", "after-double-dash", "unknown-flag"]


def test_similar_names_and_the_right_variable_are_told() -> None:
    (error,) = errors("--xla_gpu_command_buffer_mode=1")
    assert error.suggestion is None
    assert error.hint is not None
    assert "xla_gpu_command_buffer_update_mode" in error.hint
    (error,) = errors("--xla_tpu_x=1")
    assert "LIBTPU_INIT_ARGS" in error.message
    (error,) = errors("--tf_xla_x=1")
    assert "TF_XLA_FLAGS" in error.message


def test_a_bare_flag_is_told_its_type_and_default() -> None:
    (error,) = errors("--xla_gpu_autotune_level")
    assert "int32" in error.message
    assert error.hint is not None
    assert "the default is 4" in error.hint
