from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog, Outcome, ProcessWouldEndError, parse

NEW, OLD = Catalog.for_jaxlib("0.12.0.1"), Catalog.for_jaxlib("0.10.2")
LEVEL = "--xla_backend_optimization_level"
UNOPENABLE = (
    'Could not open file "x" to read flags for environment variable "XLA_FLAGS". '
    '(We assumed "x" was a file name because it did not start with a "--".)'
)


@pytest.mark.parametrize(
    ("text", "outcome", "message"),
    [
        (None, "ok", None),
        ("", "ok", None),
        ("--xla_cpu_enable_fast_math", "ok", None),
        ("--a", "fatal", "Unknown flag in XLA_FLAGS: --a"),
        ("--a='x y' --a -b", "fatal", "Unknown flags in XLA_FLAGS: --a=x y --a -b"),
        ("--help", "usage_error", "Flag parsing failed."),
        ("--xla_cpu_enable_fast_math --help --a", "usage_error", "Flag parsing failed."),
        ("--a --help", "fatal", "Unknown flags in XLA_FLAGS: --a --help"),
        ("-- --help", "fatal", "Unknown flags in XLA_FLAGS: -- --help"),
        (f"-- {LEVEL}=x", "fatal", f"Unknown flags in XLA_FLAGS: -- {LEVEL}=x"),
        (f"--a {LEVEL}=x", "usage_error", "Flag parsing failed."),
        (LEVEL, "fatal", f"Unknown flag in XLA_FLAGS: {LEVEL}"),
        (f"{LEVEL} 1", "fatal", f"Unknown flag in XLA_FLAGS: {LEVEL}"),
        (f"-{LEVEL}=1", "fatal", f"Unknown flag in XLA_FLAGS: -{LEVEL}=1"),
        (f"{LEVEL.upper()}=1", "fatal", f"Unknown flag in XLA_FLAGS: {LEVEL.upper()}=1"),
        ("x", "fatal", UNOPENABLE),
    ],
)
def test_how_reading_ends(text: str | None, outcome: str, message: str | None) -> None:
    result = parse(text, NEW, files={})
    assert (result.outcome, result.message) == (outcome, message)
    assert result.ok == (outcome == "ok")
    assert (result.changed is None) == (outcome != "ok")
    assert result.usage == (text if outcome == "usage_error" else None)


def test_what_is_read_and_what_is_not() -> None:
    text = f"{LEVEL}=1 junk {LEVEL}=2 --bogus"
    result = parse(text, NEW)
    assert result.changed == {"xla_backend_optimization_level": 1}
    assert (result.stopped_at, result.ignored) == (text.index("junk"), (text.index("junk"), len(text)))
    assert [token.text for token in result.tokens] == [f"{LEVEL}=1"]
    assert result.unknown == ()


def test_raw_facts_are_kept() -> None:
    result = parse(f"--bogus {LEVEL}=x --xla_cpu_enable_fast_math --xla_gpu_shape_checks=ignore", NEW)
    assert [token.text for token in result.unknown] == ["--bogus"]
    assert [(each.flag.name, each.value, each.error is None) for each in result.assignments] == [
        ("xla_backend_optimization_level", "x", False),
        ("xla_cpu_enable_fast_math", "true", True),
        ("xla_gpu_shape_checks", "ignore", False),
    ]
    assert [each.flag.name for each in result.bad] == [
        "xla_backend_optimization_level",
        "xla_gpu_shape_checks",
    ]
    assert (
        result.bad[0].log
        == result.log
        == ("E Couldn't interpret value x for flag xla_backend_optimization_level.",)
    )


def test_a_fatal_value_ends_the_walk() -> None:
    name = "--xla_enable_nccl_symmetric_buffers_for_collectives"
    result = parse(f"{LEVEL}=x {name}=all:x {LEVEL}=y --bogus", NEW)
    assert (result.outcome, result.message) == (Outcome.FATAL, "Invalid max_size_bytes: x")
    assert len(result.log) == 1
    assert result.assignments[-1].error == "Invalid max_size_bytes: x"


def test_values_hold_what_was_written_and_changed_what_differs() -> None:
    result = parse(
        "--xla_gpu_autotune_level=4 --xla_gpu_autotune_gemm_rtol=-inf --xla_gpu_shape_checks=IGNORE", NEW
    )
    assert result.values == {
        "xla_gpu_autotune_level": 4,
        "xla_gpu_autotune_gemm_rtol": float("-inf"),
        "xla_gpu_shape_checks": "IGNORE",
    }
    assert result.changed == {"xla_gpu_autotune_gemm_rtol": "-inf", "xla_gpu_shape_checks": "IGNORE"}


def test_no_options_of_a_process_that_ended() -> None:
    with pytest.raises(ProcessWouldEndError, match=r"0\.12\.0\.1 would end the process: Unknown flag .*--a"):
        _ = parse("--a", NEW).debug_options


def test_forced_fields_stay_as_they_are() -> None:
    result = parse("--xla_cpu_enable_fast_min_max --xla_gpu_enable_fast_min_max", NEW)
    assert result.changed == {}
    assert result.debug_options.xla_cpu_enable_fast_min_max is False
    assert parse("--xla_cpu_enable_fast_min_max=x", NEW).outcome == "usage_error"


def test_reset_reads_twice() -> None:
    result = parse(
        "--xla_flags_reset --xla_disable_hlo_passes=a --xla_gpu_enable_command_buffer=+WHILE"
        " --xla_cpu_use_thunk_runtime --xla_fuel=p=1",
        NEW,
    )
    assert result.debug_options.xla_disable_hlo_passes == ("a", "a")
    assert result.debug_options.xla_gpu_enable_command_buffer.count("WHILE") == 1
    assert [line[:2] for line in result.log] == ["W ", "W ", "E "]
    assert len(result.assignments) == len(result.tokens)
    assert parse("--xla_flags_reset --xla_flags_reset=0 --xla_gpu_ptx_file=a", NEW).changed == {
        "xla_gpu_ptx_file": ["a"]
    }


def test_unused_fuel_is_reported_at_the_end() -> None:
    end = "was never consumed. This may be a typo in the --xla_fuel flag you passed."
    assert parse("--xla_fuel=b=1,a=1", NEW).log == tuple(
        f'E Compiler fuel for "{name}" {end}' for name in "ab"
    )
    assert parse("--xla_fuel=b=1 --bogus", NEW).log == ()


def test_files() -> None:
    files = {"f": f"{LEVEL}=1\n--bogus", "g": b"--xla_dump_to=\xff"}
    assert parse("f", NEW, files=files).message == "Unknown flag in XLA_FLAGS: --bogus"
    assert parse("g", NEW, files=files).changed == {"xla_dump_to": "\udcff"}
    usage = parse("f", NEW, files={"f": "--help"})
    assert (usage.usage, usage.source.file, usage.source.text) == ("f", "f", "--help")


def test_jaxlibs_differ() -> None:
    text = "--xla_gpu_command_buffer_update_mode=SKIP_TEMP"
    assert parse(text, NEW).changed == {"xla_gpu_command_buffer_update_mode": "SKIP_TEMP"}
    assert parse(text, OLD).outcome == "usage_error"


def test_without_a_catalog_the_installed_jaxlib_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Catalog, "installed", staticmethod(lambda: OLD))
    assert parse("").catalog is OLD


FLAG = st.sampled_from([*NEW.flags.values()])
PIECE = st.one_of(
    st.binary(max_size=12),
    FLAG.map(lambda flag: f"--{flag.name}".encode()),
    FLAG.flatmap(lambda flag: st.binary(max_size=9).map(lambda value: f"--{flag.name}=".encode() + value)),
    st.sampled_from([b" ", b"\n", b"=", b"'", b'"', b"\\", b"--", b"true", b",", b"\0"]),
)


@given(st.lists(PIECE, max_size=12).map(b"".join), st.sampled_from([NEW, OLD]), st.booleans())
def test_any_bytes_have_a_verdict(text: bytes, catalog: Catalog, in_file: bool) -> None:
    result = parse("file", catalog, files={"file": text}) if in_file else parse(text, catalog, files={})
    assert result.outcome in {*Outcome}
    assert (result.message is None) == result.ok
    assert (
        len(result.assignments) + len(result.unknown) == len(result.tokens) or result.outcome is Outcome.FATAL
    )
    if result.ok:
        assert result.changed is not None
        assert {*result.changed} <= {*result.plain} <= {*catalog.fields}
        assert result.debug_options.changed().keys() == result.changed.keys()


@given(st.text())
def test_any_text_has_a_verdict(text: str) -> None:
    assert parse(text, NEW, files={}).outcome in {*Outcome}


MEGABYTE = 1_000_000
LONG = {
    "blanks": b" " * MEGABYTE,
    "blanks and a flag": b" " * MEGABYTE + b"-",
    "dashes": b"-" * MEGABYTE,
    "quotes": b"--xla_dump_to=" + b"'" * MEGABYTE,
    "escapes": b'--xla_dump_to="' + b'\\"' * (MEGABYTE // 2),
    "backslashes": b'--xla_dump_to="' + b"\\" * MEGABYTE,
    "flags": b"--xla_cpu_ftz=1 " * (MEGABYTE // 16),
    "unknown flags": b"--a " * (MEGABYTE // 4),
    "digits": b"--xla_backend_optimization_level=" + b"1" * MEGABYTE,
    "fraction": b"--xla_gpu_autotune_gemm_rtol=0.1" + b"9" * MEGABYTE,
    "tie": b"--xla_gpu_autotune_gemm_rtol=16777217." + b"0" * MEGABYTE + b"1",
    "hexadecimal": b"--xla_gpu_autotune_gemm_rtol=0x" + b"f" * MEGABYTE,
    "members": b"--xla_gpu_enable_command_buffer=+FUSION" + b",-FUSION,+FUSION" * (MEGABYTE // 16),
    "unknown members": b"--xla_gpu_enable_command_buffer=" + b"x," * (MEGABYTE // 2),
    "durations": b"--xla_gpu_execution_terminate_timeout=" + b"1s" * (MEGABYTE // 2),
    "passes": b"--xla_disable_hlo_passes=" + b"a:1," * (MEGABYTE // 4),
    "map": b"--xla_backend_extra_options=" + b"a=b," * (MEGABYTE // 4),
    "ranges": b"--xla_gpu_experimental_thunk_buffer_debug_filter_by_thunk_id_ranges="
    + b"1:2," * (MEGABYTE // 4),
    "fuel": b"--xla_fuel=" + b"a=1," * (MEGABYTE // 4),
    "filters": b"--xla_enable_nccl_symmetric_buffers_for_collectives=" + b"all:1:f32," * (MEGABYTE // 10),
    "not UTF-8": b"--xla_dump_to=" + b"\xff" * MEGABYTE,
    "a file name": b"x" * MEGABYTE,
}


@pytest.mark.parametrize("name", LONG)
def test_a_megabyte_is_read_in_linear_time(name: str) -> None:
    """Quadratic time would take hours; the bound only has to be far from both on any machine."""
    start = time.process_time()
    assert parse(LONG[name], NEW).outcome in {*Outcome}
    assert time.process_time() - start < 60
