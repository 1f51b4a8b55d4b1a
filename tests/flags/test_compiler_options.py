from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog, CommandBufferUpdateMode, ProcessWouldEndError, check_compiler_options, parse

NEW, OLD = Catalog.for_jaxlib("0.12.0.1"), Catalog.for_jaxlib("0.10.2")
BOOL, INT32, INT64 = (
    "xla_cpu_enable_fast_math",
    "xla_backend_optimization_level",
    "xla_gpu_autotune_max_solutions",
)
FLOAT, ENUM, STRING = "xla_gpu_autotune_gemm_rtol", "xla_gpu_shape_checks", "xla_dump_to"
ENUMS, STRINGS, MAP = "xla_gpu_enable_command_buffer", "xla_gpu_ptx_file", "xla_backend_extra_options"
INCOMPATIBLE = "(): incompatible function arguments. The following argument types are supported:"


class Indexed:
    def __index__(self) -> int:
        return 2


class Floating:
    def __float__(self) -> float:
        return 2.0

    def __int__(self) -> int:
        return 2


def stored(option: str, value: Any, catalog: Catalog = NEW) -> Any:
    result = check_compiler_options({option: value}, catalog)
    assert result.ok, result.message
    return result.plain[option]


GOOD: list[tuple[str, Any, Any]] = [
    (BOOL, True, True),
    (BOOL, "False", False),
    (INT32, "+2 ", 2),
    (INT32, -(2**31), -(2**31)),
    (INT64, 2**63 - 1, 2**63 - 1),
    (INT32, Indexed(), 2),
    (FLOAT, "0x1p3", 8.0),
    (FLOAT, "1e300", float("inf")),
    (FLOAT, 0.1, 0.10000000149011612),
    (FLOAT, 0.0, 0.0),
    (FLOAT, -1.5, -1.5),
    (FLOAT, 1e-46, 0.0),
    (FLOAT, 2**63, float(2**63)),
    (FLOAT, Floating(), 2.0),
    (ENUM, "RUNTIME", "RUNTIME"),
    (ENUM, " 2", "COMPILE_TIME"),
    (ENUM, 99, 99),
    (ENUM, 2**40 + 1, "RUNTIME"),
    (ENUM, 2**31, -(2**31)),
    (STRING, "é ", "é "),
    (ENUMS, "FUSION,2,99", ["FUSION", "CUBLAS", 99]),
    (ENUMS, "", []),
    (ENUMS, 1, ["FUSION"]),
    (STRINGS, "a,, b", ["a", "", " b"]),
    (MAP, "", {}),
    ("xla_gpu_execution_terminate_timeout", "bogus", "bogus"),
    ("xla_gpu_enable_libnvptxcompiler", True, True),
    ("xla_disable_hlo_passes", "a:1,@2", ["a:1", "@2"]),
    ("xla_gpu_graph_enable_concurrent_region", True, True),
]


@pytest.mark.parametrize(("option", "value", "wanted"), GOOD)
def test_good_options(option: str, value: Any, wanted: Any) -> None:
    assert stored(option, value) == wanted


WRONG: list[tuple[str, Any, str, str]] = [
    (BOOL, 1, "1", "bool"),
    (BOOL, "true", "true", "bool"),
    (INT32, True, "1", "int32"),
    (INT32, 2.0, "2", "int32"),
    (INT32, 2**31, "2147483648", "int32"),
    (INT64, 2**63, "9.22337e+18", "int64"),
    (INT64, "1e3", "1e3", "int64"),
    (FLOAT, 1, "1", "float"),
    (FLOAT, 1e300, "1e+300", "float"),
    (FLOAT, float("inf"), "inf", "float"),
    (FLOAT, float("nan"), "nan", "float"),
    (FLOAT, 3.4028235e38, "3.40282e+38", "float"),
    (ENUM, "ignore", "ignore", "enum"),
    (ENUM, True, "1", "enum"),
    (ENUM, 1.0, "1", "enum"),
    (ENUM, "2147483648", "2147483648", "enum"),
    (STRING, 1.5, "1.5", "string"),
    (ENUMS, "FUSION, CUBLAS", " CUBLAS", "enum"),
    (ENUMS, "FUSION,", "", "enum"),
    (ENUMS, True, "1", "enum"),
    (STRINGS, 5, "5", "string"),
    (MAP, "a=b", "a=b", "message"),
    (MAP, "a,b", "a", "message"),
    (MAP, 1, "1", "message"),
    ("xla_gpu_experimental_thunk_buffer_debug_filter", "", "", "message"),
]


@pytest.mark.parametrize(("option", "value", "shown", "word"), WRONG)
def test_values_of_the_wrong_type(option: str, value: Any, shown: str, word: str) -> None:
    result = check_compiler_options({option: value}, NEW)
    assert (result.outcome, result.exception, result.option) == ("error", "JaxRuntimeError", option)
    assert result.message == (
        f"INVALID_ARGUMENT: While setting option {option}, '{shown}' is not a valid {word} value."
    )
    assert result.non_default is None
    with pytest.raises(ProcessWouldEndError, match="is not a valid"):
        _ = result.debug_options


@pytest.mark.parametrize("option", ["xla_fuel", "", f"--{BOOL}", "xla_gpu_executable_terminate_timeout", "é"])
def test_names_are_those_of_fields(option: str) -> None:
    result = check_compiler_options({option: "1"}, NEW)
    assert result.message == f"INVALID_ARGUMENT: No such compile option: '{option}'"


def test_only_the_first_line_of_a_message_is_kept() -> None:
    assert (
        check_compiler_options({"a\nb": "1"}, NEW).message == "INVALID_ARGUMENT: No such compile option: 'a"
    )


@pytest.mark.parametrize("value", [None, b"1", 10**400, "\ud800", 1j])
def test_types_that_the_binding_refuses(value: Any) -> None:
    result = check_compiler_options({"xla_bogus": 1, STRING: value}, NEW)
    assert (result.exception, result.message, result.option) == ("TypeError", INCOMPATIBLE, STRING)


def test_values_are_hashed_first() -> None:
    result = check_compiler_options({STRING: None, ENUMS: ["FUSION"]}, NEW)
    assert (result.exception, result.message) == ("TypeError", "unhashable type: 'list'")


def test_keys_must_be_text() -> None:
    options: dict[Any, Any] = {1: "x"}
    assert check_compiler_options(options, NEW).message == INCOMPATIBLE


def test_the_first_error_wins() -> None:
    assert check_compiler_options({BOOL: "x", "a": 1}, NEW).option == BOOL
    assert check_compiler_options({"a": 1, BOOL: "x"}, NEW).option == "a"


def test_older_jaxlibs_differ() -> None:
    for value in (0.0, -1.0, 1e-40):
        assert not check_compiler_options({FLOAT: value}, OLD).ok
    assert stored(FLOAT, 2.0**-126, OLD) == 2.0**-126
    assert stored("xla_disable_hlo_passes", "a:x", OLD) == ["a:x"]
    assert check_compiler_options({"xla_disable_hlo_passes": "a:x"}, NEW).message == (
        "INVALID_ARGUMENT: invalid occurrence in HLO pass filter entry 'a:x': expected an integer after ':'"
    )
    assert stored(INT32, Floating(), OLD) == 2
    assert not check_compiler_options({INT32: Floating()}, NEW).ok


@pytest.mark.parametrize(
    ("catalog", "option", "value", "exception"),
    [
        (NEW, "optimization_level", "O1", None),
        (NEW, "optimization_level", 19, None),
        (NEW, "memory_fitting_level", 1, "ValueError"),
        (OLD, "optimization_level", 1, None),
        (OLD, "optimization_level", "O1", "TypeError"),
        (OLD, "exec_time_optimization_effort", 0.5, None),
        (OLD, "exec_time_optimization_effort", "x", "TypeError"),
        (NEW, "exec_time_optimization_effort", 0.5, "JaxRuntimeError"),
        (NEW, "fdo_profile", b"x", None),
        (NEW, "fdo_profile", "x", "TypeError"),
        (NEW, "individually_defined_output_indices", True, None),
    ],
)
def test_what_jax_takes_for_itself(catalog: Catalog, option: str, value: Any, exception: str | None) -> None:
    result = check_compiler_options({option: value}, catalog)
    assert result.exception == exception
    if exception is None:
        assert option not in result.plain


def test_options_come_on_top_of_flags() -> None:
    base = parse("--xla_gpu_command_buffer_update_mode=SKIP_TEMP --xla_disable_hlo_passes=a", NEW)
    result = check_compiler_options({"xla_disable_hlo_passes": "b"}, base=base)
    assert result.debug_options.xla_disable_hlo_passes == ("b",)
    assert result.debug_options.xla_gpu_command_buffer_update_mode is CommandBufferUpdateMode.SKIP_TEMP
    assert base.changed is not None
    assert base.changed["xla_disable_hlo_passes"] == ["a"]
    assert result.catalog is NEW
    with pytest.raises(ProcessWouldEndError, match="ended before"):
        check_compiler_options({}, base=parse("--bogus", NEW))


def test_non_default_is_what_a_dump_shows() -> None:
    result = check_compiler_options({ENUMS: "FUSION,CUBLAS", STRINGS: "", FLOAT: "nan"}, NEW)
    assert result.non_default == {
        ENUMS: ["CUBLAS", "FUSION"],
        FLOAT: "nan",
        "xla_cpu_enable_fast_min_max": False,
        "xla_detailed_logging": False,
    }
    assert check_compiler_options({"xla_cpu_enable_fast_min_max": True}, NEW).non_default == {
        "xla_detailed_logging": False
    }


VALUES = st.one_of(
    st.text(max_size=6),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.none(),
    st.binary(max_size=3),
    st.just([]),
)


@given(st.dictionaries(st.sampled_from([*NEW.fields, "x", "fdo_profile"]), VALUES, max_size=4))
def test_any_dictionary_has_a_verdict(options: dict[str, Any]) -> None:
    for catalog in (NEW, OLD):
        result = check_compiler_options(options, catalog)
        assert result.ok == (result.exception is None) == (result.message is None)
        assert result.ok == (result.non_default is not None)
