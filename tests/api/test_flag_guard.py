from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.api.flag_guard import FlagPolicy, check_flags
from xla_flags.parser import parse
from xla_flags.schema import Catalog, shipped_versions

OLD, NEW = Catalog.for_jaxlib("0.10.2"), Catalog.for_jaxlib("0.12.0.1")
BOTH = {"jaxlib 0.12.0.1": NEW, "jax-cuda13-pjrt 0.10.2": OLD}
MODE = "--xla_gpu_command_buffer_update_mode="
GOOD = "--xla_gpu_autotune_level=0"


@pytest.mark.parametrize("policy", FlagPolicy)
@pytest.mark.parametrize(
    "text", ["", GOOD, f"  {GOOD}   --xla_gpu_enable_triton_gemm\n", f"{MODE}ALWAYS_UPDATE"]
)
def test_what_every_xla_accepts_is_left_as_it_is(text: str, policy: FlagPolicy) -> None:
    check = check_flags(text, BOTH, policy)
    assert check.text == text
    assert check.is_accepted
    assert (check.update_mode, check.lines) == (None, ())


def test_a_warning_explains_and_changes_nothing() -> None:
    text = f"{GOOD} --xla_no_such_flag=1"
    check = check_flags(text, {"jaxlib 0.12.0.1": NEW}, FlagPolicy.WARN)
    assert check.text == text
    assert check.refusals == {"jaxlib 0.12.0.1": "Unknown flag in XLA_FLAGS: --xla_no_such_flag=1"}
    ((severity, line),) = check.lines
    assert severity == "error"
    assert "jaxlib 0.12.0.1 would end this process" in line
    assert "xla_no_such_flag" in line


def test_text_that_is_never_read_is_a_warning() -> None:
    check = check_flags(f"{GOOD} # off: --xla_no_such_flag", BOTH, FlagPolicy.REPAIR)
    assert check.text == f"{GOOD} # off: --xla_no_such_flag"
    ((severity, line),) = check.lines
    assert severity == "warning"
    assert "stops reading" in line


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        (f"--xla_no_such_flag_at_all=1 {GOOD}", GOOD),
        ("--xla_gpu_graph_level=0", "--xla_gpu_enable_command_buffer="),
        (f"{GOOD} --xla_gpu_enable_triton_gemm-false", f"{GOOD} --xla_gpu_enable_triton_gemm=false"),
        (f'"{GOOD}"', GOOD),
        ("--help", ""),
        ("/no/such/file", ""),
        (f"--xla_gpu_ptx_file='a b' {GOOD}x", "--xla_gpu_ptx_file='a b'"),
        (f"{GOOD} -- --xla_gpu_enable_triton_gemm=true", f"{GOOD} --xla_gpu_enable_triton_gemm=true"),
        ("--xla_enable_nccl_symmetric_buffers_for_collectives=ALL:x", ""),
    ],
)
def test_a_repair_rewrites_where_advice_is_good_and_drops_elsewhere(text: str, repaired: str) -> None:
    check = check_flags(text, {"jaxlib 0.12.0.1": NEW}, FlagPolicy.REPAIR)
    assert check.text == repaired
    assert check.is_accepted
    assert check.lines
    assert all(severity == "warning" for severity, _ in check.lines)


def test_a_file_is_repaired_into_the_variable() -> None:
    check = check_flags(
        "flags.txt",
        {"jaxlib 0.12.0.1": NEW},
        FlagPolicy.REPAIR,
        files={"flags.txt": f"{GOOD}\n--xla_gone_flag=1\n--xla_gpu_ptx_file='a\nb'\n# --xla_unread\n"},
    )
    assert check.text == f"{GOOD} --xla_gpu_ptx_file='a\nb'"
    assert check.is_accepted


def test_a_flag_must_please_every_xla() -> None:
    only_old, only_new = "--xla_gpu_experimental_enable_nvshmem=true", "--xla_gpu_hlo_custom_call_allowlist=a"
    check = check_flags(f"{only_old} {GOOD} {only_new}", BOTH, FlagPolicy.REPAIR)
    assert check.text == GOOD
    warned = check_flags(f"{only_old} {GOOD} {only_new}", BOTH, FlagPolicy.WARN)
    assert warned.refusals.keys() == BOTH.keys()


@pytest.mark.parametrize("policy", [FlagPolicy.WARN, FlagPolicy.REPAIR])
@pytest.mark.parametrize("mode", ["SKIP_TEMP", "SKIP_PROFILED"])
def test_a_mode_that_we_implement_becomes_the_decorators(policy: FlagPolicy, mode: str) -> None:
    check = check_flags(f"{GOOD} {MODE}{mode}", {"jaxlib 0.10.2": OLD}, policy)
    assert check.text == GOOD
    assert check.update_mode == mode
    assert check.is_accepted
    ((severity, line),) = check.lines
    assert severity == "warning"
    assert f"jaxlib 0.10.2 has no update mode {mode}" in line
    left = check_flags(f"{GOOD} {MODE}{mode}", {"jaxlib 0.12.0.1": NEW}, policy)
    assert (left.text, left.update_mode) == (f"{GOOD} {MODE}{mode}", None)


def test_the_last_mode_wins_as_in_xla() -> None:
    old = {"jaxlib 0.10.2": OLD}
    first = check_flags(f"{MODE}SKIP_TEMP {MODE}ALWAYS_UPDATE", old, FlagPolicy.WARN)
    assert (first.text, first.update_mode) == (f"{MODE}ALWAYS_UPDATE", None)
    last = check_flags(f"{MODE}ALWAYS_UPDATE {MODE}SKIP_TEMP {MODE}SKIP_PROFILED", old, FlagPolicy.WARN)
    assert (last.text, last.update_mode) == (f"{MODE}ALWAYS_UPDATE", "SKIP_PROFILED")


def test_one_plugin_that_lacks_the_mode_is_enough() -> None:
    assert check_flags(f"{MODE}SKIP_TEMP", BOTH, FlagPolicy.WARN).update_mode == "SKIP_TEMP"


def test_a_mode_that_nobody_knows_is_only_explained() -> None:
    check = check_flags(f"{MODE}skip_temp", {"jaxlib 0.10.2": OLD}, FlagPolicy.WARN)
    assert check.text == f"{MODE}skip_temp"
    assert not check.is_accepted


WORDS = st.sampled_from(
    [
        *(
            GOOD,
            "--xla_gpu_autotune_level=x",
            "--xla_nothing",
            f"{MODE}SKIP_TEMP",
            f"{MODE}nope",
            "--",
            "-",
            "x",
        ),
        *('"--a', "--xla_gpu_graph_level=1", "--xla_gpu_ptx_file='a b'", "--help", "'", "--xla_fuel=a", "\n"),
        *(
            "--xla_gpu_enable_command_buffer=+FUSION,",
            "--xla_disable_hlo_passes=@x",
            "${XLA_FLAGS}",
            "--xla_gpu",
        ),
    ]
)


@given(st.lists(WORDS, max_size=6).map(" ".join), st.sampled_from(shipped_versions()))
def test_a_repaired_text_is_always_accepted_and_repairing_again_changes_nothing(
    text: str, version: str
) -> None:
    catalog = Catalog.for_jaxlib(version)
    check = check_flags(text, {version: catalog}, FlagPolicy.REPAIR, files={})
    assert check.is_accepted
    assert parse(check.text, catalog, files={}).ok
    again = check_flags(check.text, {version: catalog}, FlagPolicy.REPAIR, files={})
    assert again.text == check.text
