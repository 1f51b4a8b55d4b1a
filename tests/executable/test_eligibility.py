from __future__ import annotations

from dataclasses import replace

import pytest

from jax_cmdbuf.executable.conversion_rules import KIND_TYPES, rules_for
from jax_cmdbuf.executable.eligibility import (
    Configuration,
    LeftOutReason,
    refusal,
    refusal_of_list,
)
from jax_cmdbuf.executable.executable import DeviceDescription, Executable
from jax_cmdbuf.executable.thunks import (
    AsyncInfo,
    CollectiveInfo,
    CopyDirection,
    CopyInfo,
    CustomCallInfo,
    DynamicSliceFusionInfo,
    Thunk,
    ThunkInfo,
    ThunkKind,
    WhileInfo,
)

NEW = DeviceDescription("gpu", (13, 0, 0), (13, 0, 0), (13, 0, 0), "test")
EVERYTHING = Configuration(
    enabled=frozenset(KIND_TYPES.values()),
    collectives_filter=frozenset({"ALLCOLLECTIVES"}),
    min_size=1,
    unroll_loops=False,
    partition_size=0,
    device=NEW,
    ffi_traits={"ok": True, "no": False},
    rules=rules_for("0.12"),
)


def thunk(kind: str, info: ThunkInfo = None, *nested: tuple[Thunk, ...]) -> Thunk:
    return Thunk(ThunkKind(kind), 7, "t", info=info, nested=nested)


def reason(one: Thunk, config: Configuration = EVERYTHING) -> LeftOutReason | None:
    found = refusal(one, config)
    return found.reason if found is not None else None


KERNEL = thunk("kCustomKernel")
FFT = thunk("kFft")
PLAIN = sorted(
    KIND_TYPES.keys()
    - {"kCopy", "kCustomCall", "kWhile", "kConditional", "kDynamicSliceFusion", "kRaggedAllToAll"}
)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_kind_needs_its_type_only(kind: str) -> None:
    assert reason(thunk(kind)) is None
    without = replace(EVERYTHING, enabled=EVERYTHING.enabled - {KIND_TYPES[kind]})
    found = refusal(thunk(kind), without)
    assert found is not None
    assert found.reason is LeftOutReason.TYPE_NOT_ENABLED
    assert KIND_TYPES[kind] in found.detail


@pytest.mark.parametrize("kind", ["kFft", "kTriangularSolve", "kSequential", "kRngSeed", "kInfeed", "kNew"])
def test_other_kinds_never(kind: str) -> None:
    assert reason(thunk(kind)) is LeftOutReason.KIND_NEVER_RECORDED


@pytest.mark.parametrize("direction", list(CopyDirection))
def test_copies_on_the_device_only(direction: CopyDirection) -> None:
    expected = (
        None if direction is CopyDirection.DEVICE_TO_DEVICE else LeftOutReason.COPY_NOT_DEVICE_TO_DEVICE
    )
    assert reason(thunk("kCopy", CopyInfo(direction, 4))) is expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [("ok", None), ("no", LeftOutReason.FFI_NOT_COMPATIBLE), ("new", LeftOutReason.FFI_UNKNOWN)],
)
def test_custom_calls_by_their_handler(target: str, expected: LeftOutReason | None) -> None:
    assert reason(thunk("kCustomCall", CustomCallInfo(target))) is expected


@pytest.mark.parametrize(
    ("runtime", "driver", "series", "kind", "expected"),
    [
        ((12, 3, 0), (12, 3, 0), "0.12", "kCustomKernel", None),
        ((12, 2, 9), (12, 3, 0), "0.12", "kCustomKernel", LeftOutReason.DRIVER_TOO_OLD),
        ((12, 3, 0), (12, 2, 0), "0.12", "kCustomKernel", LeftOutReason.DRIVER_TOO_OLD),
        ((12, 2, 0), (12, 2, 0), "0.11", "kCustomKernel", None),
        ((12, 2, 0), (12, 2, 0), "0.11", "kGemm", LeftOutReason.DRIVER_TOO_OLD),
        ((0, 0, 0), (13, 0, 0), "0.10", "kCuDnn", LeftOutReason.DRIVER_TOO_OLD),
    ],
)
def test_cuda_12_3(
    runtime: tuple[int, int, int],
    driver: tuple[int, int, int],
    series: str,
    kind: str,
    expected: LeftOutReason | None,
) -> None:
    device = replace(
        NEW, runtime_version=runtime, driver_version=driver, compile_time_toolkit_version=(11, 0, 0)
    )
    config = replace(EVERYTHING, device=device, rules=rules_for(series))
    assert reason(thunk(kind), config) is expected


@pytest.mark.parametrize(
    ("platform", "kind", "expected"),
    [
        ("ROCM", "kCustomKernel", None),
        ("ROCM", "kConditional", LeftOutReason.PLATFORM),
        ("SYCL", "kCustomKernel", LeftOutReason.PLATFORM),
    ],
)
def test_other_platforms(platform: str, kind: str, expected: LeftOutReason | None) -> None:
    device = replace(NEW, platform=platform, runtime_version=(6, 0, 0))
    assert reason(thunk(kind), replace(EVERYTHING, device=device)) is expected


@pytest.mark.parametrize("lowest", ["runtime_version", "driver_version", "compile_time_toolkit_version"])
def test_dynamic_slice_fusions_need_12_9_everywhere(lowest: str) -> None:
    fusion = thunk("kDynamicSliceFusion", DynamicSliceFusionInfo(), (KERNEL,))
    assert reason(fusion) is None
    at = replace(EVERYTHING, device=replace(NEW, **{lowest: (12, 9, 0)}))  # type: ignore[arg-type]
    assert reason(fusion, at) is None
    below = replace(EVERYTHING, device=replace(NEW, **{lowest: (12, 8, 9)}))  # type: ignore[arg-type]
    assert reason(fusion, below) is LeftOutReason.DYNAMIC_SLICE_TOOLKIT


def test_dynamic_slice_fusions_that_verify_or_hold_something_ineligible() -> None:
    verified = thunk("kDynamicSliceFusion", DynamicSliceFusionInfo(verify_offsets=True), (KERNEL,))
    assert reason(verified) is LeftOutReason.DYNAMIC_SLICE_VERIFIED
    assert (
        reason(thunk("kDynamicSliceFusion", DynamicSliceFusionInfo(), (FFT,)))
        is LeftOutReason.NESTED_INELIGIBLE
    )


def test_loops_with_moving_slices_must_be_unrolled() -> None:
    moving = thunk("kDynamicSliceFusion", DynamicSliceFusionInfo(loop_dependent=True), (KERNEL,))
    known, unknown = WhileInfo(4), WhileInfo(None)
    unrolled = replace(EVERYTHING, unroll_loops=True)
    condition, inside = (KERNEL,), (thunk("kConditional", None, (moving,)),)
    assert reason(thunk("kWhile", known, condition, inside)) is LeftOutReason.LOOP_DEPENDENT_SLICE
    assert reason(thunk("kWhile", known, condition, inside), unrolled) is None
    assert reason(thunk("kWhile", unknown, condition, inside), unrolled) is LeftOutReason.LOOP_DEPENDENT_SLICE
    embedded = (thunk("kDynamicSliceFusion", DynamicSliceFusionInfo(), (moving,)),)
    assert reason(thunk("kWhile", known, condition, embedded)) is None
    assert reason(thunk("kWhile", known, (moving,), (KERNEL,))) is None


@pytest.mark.parametrize(
    ("names", "kind", "op", "expected"),
    [
        ({"ALLREDUCE"}, "kAllReduce", "ALLREDUCE", None),
        ({"ALLREDUCE"}, "kAllGather", "ALLGATHER", LeftOutReason.COLLECTIVE_FILTERED),
        ({"NOOP", "ALLCOLLECTIVES"}, "kAllGather", "ALLGATHER", None),
        (set(), "kAllGather", "ALLGATHER", None),
        ({"ALLREDUCE"}, "kSend", "SEND", None),
        ({"ALLREDUCE"}, "kRecv", "RECV", None),
        ({"ALLREDUCE"}, "kGroup", "GROUP", None),
        ({"ALLREDUCE"}, "kCollectiveKernel", "COLLECTIVEKERNEL", None),
    ],
)
def test_the_collectives_filter(names: set[str], kind: str, op: str, expected: LeftOutReason | None) -> None:
    config = replace(EVERYTHING, collectives_filter=frozenset(names))
    assert reason(thunk(kind, CollectiveInfo(op)), config) is expected


def test_a_group_meets_the_filter_member_by_member() -> None:
    config = replace(EVERYTHING, collectives_filter=frozenset({"ALLREDUCE"}))
    members = (
        thunk("kAllReduce", CollectiveInfo("ALLREDUCE")),
        thunk("kAllGather", CollectiveInfo("ALLGATHER")),
    )
    assert reason(thunk("kGroup", CollectiveInfo("GROUP"), members[:1]), config) is None
    found = refusal(thunk("kGroup", CollectiveInfo("GROUP"), members), config)
    assert found is not None
    assert "ALLGATHER is not in" in found.detail


@pytest.mark.parametrize(
    ("changes", "partition_size", "problem"),
    [
        ({}, 0, None),
        ({}, 8, None),
        ({}, 4, "several domains of 4"),
        ({"replica_groups": ((0, 1, 2, 3), (4, 5, 6, 7))}, 4, None),
        ({"one_shot_kernel_enabled": False}, 0, "one-shot"),
        ({"replica_groups": (tuple(range(9)),)}, 0, "9 devices exceeds 8"),
        ({"element_bits": (32, 1)}, 0, "whole number of bytes"),
        ({"element_bits": (4,)}, 0, "whole number of bytes"),
    ],
)
def test_ragged_all_to_all(changes: dict[str, object], partition_size: int, problem: str | None) -> None:
    info = CollectiveInfo(
        "RAGGEDALLTOALL",
        replica_groups=(tuple(range(8)),),
        one_shot_kernel_enabled=True,
        element_bits=(32, 64),
    )
    info = replace(info, **changes)  # type: ignore[arg-type]
    found = refusal(thunk("kRaggedAllToAll", info), replace(EVERYTHING, partition_size=partition_size))
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert found.reason is LeftOutReason.RAGGED_ALL_TO_ALL
        assert problem in found.detail


def start(number: int) -> Thunk:
    return Thunk(ThunkKind("kAsyncStart"), number, "s", nested=((KERNEL,),), info=AsyncInfo(number, ("c", 0)))


def done(number: int) -> Thunk:
    return Thunk(ThunkKind("kAsyncDone"), 100 + number, "d", info=AsyncInfo(number))


@pytest.mark.parametrize(
    ("thunks", "series", "expected"),
    [
        ((KERNEL, start(1), KERNEL, done(1), KERNEL), "0.12", None),
        ((start(1), KERNEL), "0.12", LeftOutReason.ASYNC_UNCLOSED),
        ((start(1), FFT, done(1)), "0.12", LeftOutReason.ASYNC_INELIGIBLE),
        ((KERNEL, done(1)), "0.12", LeftOutReason.ASYNC_DONE),
        ((KERNEL, done(1)), "0.11", None),
        ((), "0.12", None),
    ],
)
def test_nested_lists(thunks: tuple[Thunk, ...], series: str, expected: LeftOutReason | None) -> None:
    config = replace(EVERYTHING, rules=rules_for(series))
    found = refusal_of_list(thunks, config)
    assert (found.reason if found else None) is expected
    conditional = thunk("kConditional", None, (KERNEL,), thunks)
    assert reason(conditional, config) is (LeftOutReason.NESTED_INELIGIBLE if expected else None)


def test_an_executables_options_become_the_configuration() -> None:
    executable = Executable(
        "m",
        (),
        (),
        debug_options={
            "xla_gpu_enable_command_buffer": ("FUSION", 99),
            "xla_gpu_graph_min_graph_size": 0,
            "xla_gpu_command_buffer_unroll_loops": True,
        },
        jaxlib="0.11",
        partition_size=4,
    )
    found = Configuration.of(executable, NEW, {})
    assert found.enabled == {"FUSION", "99"}
    assert found.collectives_filter == frozenset()
    assert (found.min_size, found.unroll_loops, found.partition_size) == (1, True, 4)
    assert found.rules.series == "0.11"
