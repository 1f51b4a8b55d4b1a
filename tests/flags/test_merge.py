from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog, Flags, ParseResult, ProcessWouldEndError, Setting, parse
from xla_flags.merge import replaces

NEW, OLD = Catalog.for_jaxlib("0.12.0.1"), Catalog.for_jaxlib("0.10.2")
LIST = "--xla_gpu_enable_command_buffer"


def flags(text: str | None, origin: str = "XLA_FLAGS", catalog: Catalog = NEW) -> Flags:
    return Flags.parse(text, catalog, origin)


def test_single_values_are_replaced_and_lists_added_to() -> None:
    base = flags(f"--xla_gpu_autotune_level=2 --xla_disable_hlo_passes=a {LIST}=+WHILE", "base")
    override = flags(f"--xla_gpu_autotune_level=3 --xla_disable_hlo_passes=b {LIST}=-FUSION", "override")
    merged = Flags.merge(base, override)
    assert merged.text == (
        f"--xla_disable_hlo_passes=a {LIST}=+WHILE "
        f"--xla_gpu_autotune_level=3 --xla_disable_hlo_passes=b {LIST}=-FUSION"
    )
    assert merged.replaced == (Setting("--xla_gpu_autotune_level=2", "base"),)
    assert merged.origin_of("xla_gpu_autotune_level") == "override"
    assert merged.origins["xla_disable_hlo_passes"] == ("base", "override")
    assert merged.origin_of("xla_dump_to") is None


def test_a_library_has_defaults_and_the_user_the_last_word() -> None:  # B20
    user = flags("--xla_dump_to=/d --xla_gpu_autotune_level=0")
    ensured = user.ensure({"xla_gpu_graph_min_graph_size": 1, "xla_gpu_autotune_level": 4}, "vmex")
    assert ensured.check().values == {
        "xla_gpu_graph_min_graph_size": 1,
        "xla_dump_to": "/d",
        "xla_gpu_autotune_level": 0,
    }
    assert ensured.origins == {
        "xla_gpu_graph_min_graph_size": ("vmex",),
        "xla_dump_to": ("XLA_FLAGS",),
        "xla_gpu_autotune_level": ("XLA_FLAGS",),
    }


def test_two_flags_of_one_field_are_one_value() -> None:
    ensured = flags("--xla_gpu_graph_enable_concurrent_region=false").ensure(
        {"xla_gpu_command_buffer_scheduling_mode": "LHS"}, "lib"
    )
    assert ensured.text == "--xla_gpu_graph_enable_concurrent_region=false"
    assert ensured.origin_of("xla_gpu_command_buffer_scheduling_mode") == "XLA_FLAGS"


def test_a_default_that_this_release_refuses_is_left_out() -> None:
    defaults = "--xla_gpu_experimental_enable_nvshmem --xla_dump_to=/d"
    assert flags(None, catalog=OLD).ensure(defaults, "lib").refused == ()
    ensured = flags(None).ensure(defaults, "lib")
    assert ensured.refused == (Setting("--xla_gpu_experimental_enable_nvshmem", "lib"),)
    assert ensured.text == "--xla_dump_to=/d"
    assert flags(None).ensure({"xla_gpu_graph_level": 0}, "lib").text == ""


def test_what_is_wrong_stays_wrong() -> None:
    merged = Flags.merge(
        flags("--xla_gpu_autotune_level=x --bogus='a b'"), flags("--xla_gpu_autotune_level=3")
    )
    assert merged.text == "--xla_gpu_autotune_level=x --bogus='a b' --xla_gpu_autotune_level=3"
    assert merged.check().message == "Flag parsing failed."
    assert (
        parse(flags("-- --xla_dump_to=/x").text, NEW).message
        == "Unknown flags in XLA_FLAGS: -- --xla_dump_to=/x"
    )


def test_files_are_read_and_missing_ones_reported(tmp_path: Path) -> None:
    file = tmp_path / "flags.txt"
    file.write_text("--xla_dump_to=/d\n--xla_gpu_autotune_level=2 # not read\n")
    assert flags(str(file)).text == "--xla_dump_to=/d --xla_gpu_autotune_level=2"
    with pytest.raises(ProcessWouldEndError, match="Could not open file"):
        flags(str(file) + "x")


def test_releases_do_not_mix() -> None:
    with pytest.raises(ValueError, match=r"0\.12\.0\.1 and 0\.10\.2"):
        Flags.merge(flags(""), flags("", catalog=OLD))


def test_canonical_text() -> None:
    text = (
        "--xla_gpu_triton_gemm_any --xla_dump_to='/a b' --xla_gpu_autotune_level='02' --xla_dump_to=\"it's\""
    )
    assert flags(text).texts == (
        "--xla_gpu_triton_gemm_any=true",
        "--xla_gpu_autotune_level=2",
        "--xla_dump_to=it's",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", True), ("A,B", True), (" A", True), ("+A", False), (" -A,", False), (",", False)],
)
def test_when_a_list_is_replaced(value: str, expected: bool) -> None:
    assert replaces(NEW.flags["xla_gpu_enable_command_buffer"], value) is expected


VALUES = st.text("0123+-,= aAtruefls:'\"\\\nFUSION", max_size=10)
KNOWN = [
    *("xla_gpu_autotune_level", "xla_dump_to", "xla_gpu_triton_gemm_any", "xla_gpu_enable_command_buffer"),
    *(
        "xla_disable_hlo_passes",
        "xla_backend_extra_options",
        "xla_gpu_graph_enable_concurrent_region",
        "xla_fuel",
    ),
    *("xla_gpu_command_buffer_scheduling_mode", "xla_gpu_unsupported_use_all_reduce_one_shot_kernel"),
    *("xla_gpu_experimental_use_collective_kernels", "xla_flags_reset", "xla_gpu_disable_async_collectives"),
    *("xla_gpu_detect_nan", "xla_gpu_enable_cudnn_fmha", "bogus"),
]
GOOD = [
    *(f"{LIST}=+WHILE", f"{LIST}=-FUSION", f"{LIST}=", f"{LIST}=FUSION,CUDNN", "--xla_disable_hlo_passes=a"),
    *("--xla_gpu_autotune_level=1", "--xla_gpu_autotune_level=2", "--xla_backend_extra_options=a=1"),
    *("--xla_backend_extra_options=a", "--xla_gpu_unsupported_use_all_reduce_one_shot_kernel=false"),
    *("--xla_gpu_experimental_use_collective_kernels=", "--xla_gpu_graph_enable_concurrent_region"),
    *(
        "--xla_gpu_command_buffer_scheduling_mode=LHS",
        "--xla_fuel=a=1",
        "--xla_fuel=b=2",
        "--xla_flags_reset",
    ),
]
WRITTEN = st.one_of(
    st.sampled_from(GOOD),
    st.builds(lambda name, value: f"--{name}={value!r}", st.sampled_from(KNOWN), VALUES),
    st.sampled_from(["--bogus", "--", "-x", "--xla_gpu_triton_gemm_any", "--help"]),
)
TEXTS = st.one_of(
    st.lists(st.sampled_from(GOOD), max_size=8), st.lists(WRITTEN, max_size=8)
).map(" ".join)  # fmt: skip


def verdict(text: str) -> tuple[object, ...]:
    result = parse(text, NEW, files={})
    return result.outcome, result.message, by_name(result)


def by_name(result: ParseResult) -> str:
    return repr(sorted(result.values.items())) if result.ok else ""


def test_of_equal_settings_the_last_is_kept() -> None:
    found = flags("--xla_gpu_autotune_level=2 --xla_dump_to=/d --xla_gpu_autotune_level=2")
    assert [each.name for each in found.effective] == ["xla_dump_to", "xla_gpu_autotune_level"]
    assert [each.name for each in found.replaced] == ["xla_gpu_autotune_level"]


@given(TEXTS)
def test_replaced_and_effective_are_all(text: str) -> None:
    found = flags(text)
    assert sorted(map(str, (*found.effective, *found.replaced))) == sorted(map(str, found.settings))


@given(TEXTS)
def test_canonical_text_means_the_same(text: str) -> None:
    assert verdict(flags(text).text) == verdict(text[: parse(text, NEW, files={}).stopped_at])
    assert flags(flags(text).text).text == flags(text).text


@given(TEXTS, TEXTS)
def test_merging_is_one_text_after_the_other(one: str, other: str) -> None:
    one, other = (text[: parse(text, NEW, files={}).stopped_at].strip() for text in (one, other))
    base, override = flags(one, "one"), flags(other, "other")
    merged = Flags.merge(base, override)
    both = Flags(NEW, (*base.settings, *override.settings)).check()
    assert verdict(merged.text) == (both.outcome, both.message, by_name(both))
    for name, origins in merged.origins.items():
        assert {*origins} <= {"one", "other"}, name


@given(TEXTS, st.dictionaries(st.sampled_from(KNOWN), st.one_of(st.booleans(), st.integers(0, 9), VALUES)))
def test_defaults_never_break_flags_that_work(text: str, defaults: dict[str, object]) -> None:
    user = flags(text)
    before, after = user.check(), user.ensure(defaults, "lib").check()
    assert before.outcome == after.outcome
    if before.ok:
        for name, value in before.values.items():
            if not isinstance(value, tuple) and not hasattr(value, "keys"):
                assert after.values[name] == value
