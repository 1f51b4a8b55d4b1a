from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags.schema import Catalog, FlagKind
from xla_flags.scratch import FatalValue, Scratch
from xla_flags.setters import SETTERS
from xla_flags.setters_lists import pass_filter_error

CATALOG = Catalog.for_jaxlib("0.12.0.1")
COMMANDS = "xla_gpu_enable_command_buffer"
DEFAULT = CATALOG.fields[COMMANDS].default


def run(name: str, *values: str) -> tuple[object, str | None, list[str]]:
    scratch = Scratch(CATALOG)
    flag = CATALOG.flags[name]
    error = None
    for value in values:
        error = SETTERS[flag.kind](flag, value, scratch)
    assert flag.field is not None
    return scratch.plain.get(flag.field.name), error, scratch.log


@pytest.mark.parametrize(
    ("values", "members"),
    [
        ([""], []),
        (["fusion, Cublas ,"], ["FUSION", "CUBLAS"]),
        (["FUSION,fusion"], ["FUSION"]),
        (["FUSION", "+CUBLAS"], ["FUSION", "CUBLAS"]),
        (["FUSION", ","], ["FUSION"]),
        (["FUSION", " \t"], ["FUSION"]),
        (["+WHILE"], [*DEFAULT, "WHILE"]),
        (["+FUSION"], DEFAULT),
        (["-FUSION , +FUSION"], [*(each for each in DEFAULT if each != "FUSION"), "FUSION"]),
        (["-WHILE"], DEFAULT),
        (["invalid"], ["INVALID"]),
    ],
)
def test_enum_lists(values: list[str], members: list[str]) -> None:
    assert run(COMMANDS, *values) == (members, None, []) or (
        members == DEFAULT and run(COMMANDS, *values)[0] in (None, DEFAULT)
    )


@pytest.mark.parametrize("value", ["+A,", "A,+FUSION", "+FUSION,CUBLAS", "+FUSION,,+CUBLAS"])
def test_signs_must_be_on_all_or_none(value: str) -> None:
    written, error, log = run(COMMANDS, value)
    assert written is None
    assert error
    assert log == [
        f"E Illegal value for {COMMANDS} '{value}': All values must be incremental or none of them."
    ]


@pytest.mark.parametrize(
    ("flag", "value", "shown"),
    [
        (COMMANDS, "fusion,bogus", "BOGUS"),
        (COMMANDS, "+", ""),
        (COMMANDS, "++fusion", "+FUSION"),
        (COMMANDS, "+ fusion", " FUSION"),
        (COMMANDS, "1", "1"),
        ("xla_cpu_experimental_onednn_fusion_type", "bogus", "LIBRARY_FUSION_TYPE_BOGUS"),
        ("xla_cpu_experimental_onednn_fusion_type", "+", "LIBRARY_FUSION_TYPE_"),
        ("xla_gpu_experimental_use_collective_kernels", "collective_kernel_x", "COLLECTIVE_KERNEL_X"),
    ],
)
def test_unknown_members(flag: str, value: str, shown: str) -> None:
    _, error, log = run(flag, value)
    assert error
    assert log == [f"E Illegal value for --{flag} '{shown}'"]


@given(
    st.lists(st.tuples(st.sampled_from("+-"), st.sampled_from([*DEFAULT, "WHILE", "INVALID"])), min_size=1)
)
def test_signs_act_as_on_an_ordered_set(changes: list[tuple[str, str]]) -> None:
    model = [*DEFAULT]
    for sign, member in changes:
        if sign == "+" and member not in model:
            model.append(member)
        elif sign == "-" and member in model:
            model.remove(member)
    assert run(COMMANDS, ",".join(sign + member for sign, member in changes))[0] == model
    assert run(COMMANDS, *(sign + member for sign, member in changes))[0] == model


def test_prefixes_are_optional() -> None:
    name = "xla_cpu_experimental_onednn_fusion_type"
    assert run(name, "dot,library_fusion_type_eltwise")[0] == [
        "LIBRARY_FUSION_TYPE_DOT",
        "LIBRARY_FUSION_TYPE_ELTWISE",
    ]


def test_async_collectives() -> None:
    name = "xla_gpu_disable_async_collectives"
    every = [
        "ALLREDUCE",
        "ALLGATHER",
        "REDUCESCATTER",
        "COLLECTIVEBROADCAST",
        "ALLTOALL",
        "COLLECTIVEPERMUTE",
    ]
    every.append("RAGGEDALLTOALL")
    assert run(name, "allreduce,AllReduce")[0] == ["ALLREDUCE", "ALLREDUCE"]
    assert run(name, "noop,allcollectives,allgather")[0] == ["NOOP", *every]
    assert run(name, "allreduce", "allgather")[0] == ["ALLGATHER"]
    for bad in ("", "allreduce,", " allreduce", "+allreduce", "allcollectives,x"):
        written, error, log = run(name, bad)
        assert (written, log) == (None, [])
        assert error


def test_pass_lists() -> None:
    name = "xla_disable_hlo_passes"
    assert run(name, "a,,b:1,@-2,/x@y", "")[0] == ["a", "", "b:1", "@-2", "/x@y", ""]
    _, error, log = run(name, "a,b:x")
    assert error == "invalid occurrence in HLO pass filter entry 'b:x': expected an integer after ':'"
    assert log == [f"E Invalid --{name} entry: {error}"]
    assert (
        pass_filter_error("@x")
        == "invalid pass_id in HLO pass filter entry '@x': expected an integer after '@'"
    )
    for bad in ("@", ":", "a:1:2", "@1:2"):
        assert pass_filter_error(bad)
    for good in ("", "a", "@ 1 ", ":1", "a@b", "a:+1"):
        assert pass_filter_error(good) is None


def test_old_jaxlibs_check_no_passes() -> None:
    old = Catalog.for_jaxlib("0.10.2")
    assert old.flags["xla_disable_hlo_passes"].kind is FlagKind.COMMA_LIST


def test_other_lists_append() -> None:
    assert run("xla_gpu_ptx_file", "a,b", "")[0] == ["a,b", ""]
    assert run("xla_gpu_hlo_custom_call_allowlist", " a ,,b\v", "a")[0] == ["a", "b", "a"]
    assert run("xla_gpu_ptx_compiler_extra_flags", "-a\v-b,c  -d", "\u00a0")[0] == [
        "-a",
        "-b,c",
        "-d",
        "\u00a0",
    ]


def test_maps_merge() -> None:
    assert run("xla_backend_extra_options", "a=1,b,=,c=x=y", "a=2")[0] == {
        "a": "2",
        "b": "",
        "": "",
        "c": "x=y",
    }
    assert run("xla_backend_extra_options", "")[0] == {"": ""}


def test_collective_filters() -> None:
    name = "xla_enable_nccl_symmetric_buffers_for_collectives"
    assert run(name, "All_Reduce,,all: 5 :bf16:x,alltoall:-1:11")[0] == [
        {"collective": "ALLREDUCE"},
        {"collective": "ALLCOLLECTIVES", "max_size_bytes": 5, "op_type": "BF16"},
        {"collective": "ALLTOALL", "max_size_bytes": -1, "op_type": "F32"},
    ]
    assert run(name, "bogus:x")[2] == ["E Invalid collective op name: bogus"]
    for bad in ("all:", "all:x", "all::f32"):
        with pytest.raises(FatalValue, match="Invalid max_size_bytes: "):
            run(name, bad)
    for bad in ("x", "", "999", "-1", "4294967307"):
        with pytest.raises(FatalValue, match=rf"Invalid op_type \(PrimitiveType\): {bad}$"):
            run(name, f"all:1:{bad}")


def test_thunk_filters_share_a_message() -> None:
    ranges = "xla_gpu_experimental_thunk_buffer_debug_filter_by_thunk_id_ranges"
    regexes = "xla_gpu_experimental_thunk_buffer_debug_filter_by_profile_annotation_re"
    assert run(ranges, "1, 2:3 ", ":4,5:")[0] == {
        "thunk_id_ranges": [
            {"first": 1, "last": 1},
            {"first": 2, "last": 3},
            {"first": -(2**63), "last": 4},
            {"first": 5, "last": 2**63 - 1},
        ]
    }
    assert run(regexes, "a,(", "")[0] == {"profile_annotation_regexes": ["a", "(", ""]}
    for bad in ("", ":", "1,", "2:1", "1:2:3", "x", "1:x"):
        written, error, log = run(ranges, bad)
        assert (written, log) == (None, [])
        assert error
