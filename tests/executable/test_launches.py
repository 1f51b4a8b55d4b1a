"""Programs as driver commands: what is supported, and what is named as not."""

from pathlib import Path

import pytest

from jax_cmdbuf.executable.buffers import Access, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.launches import Copy, Fill, Launch, launch_program
from jax_cmdbuf.executable.thunks import CopyDirection, CopyInfo, Thunk, ThunkKind

RECORDED = Path(__file__).parents[1] / "data" / "va_remap"


def recorded(scenario: str) -> Executable:
    return Executable.from_file(RECORDED / scenario / "executable.bin.gz")


def copy_thunk(direction: CopyDirection, sizes: tuple[int, int] = (64, 64)) -> Thunk:
    uses = (
        BufferUse(BufferAllocationSlice(0, 0, sizes[0]), Access.READ),
        BufferUse(BufferAllocationSlice(1, 128, sizes[1]), Access.WRITE),
    )
    return Thunk(ThunkKind("kCopy"), 1, "copy.1", uses, info=CopyInfo(direction, 64))


@pytest.mark.parametrize(
    "scenario", ["mlp_same", "train_donate", "attn_block", "real_transformer_adamw_donate"]
)
def test_a_program_of_kernels_becomes_commands(scenario: str) -> None:
    executable = recorded(scenario)
    program = launch_program(executable.thunks)
    assert not program.unsupported
    for step in program.steps:
        for part in step.slices:
            assert part.offset + part.size <= executable.allocations[part.allocation].size
        if isinstance(step, Launch):
            assert step.kernel.cubin
            assert step.arguments == tuple(use.slice for use in step.thunk.own_uses)


@pytest.mark.parametrize(
    ("scenario", "kind", "reason"),
    [
        ("bf16_mlp", "kCustomKernel", "tensor maps"),
        ("conv", "kConvolution", "only kernels"),
        ("while_loop", "kWhile", "only kernels"),
        ("sort_fft", "kFft", "only kernels"),
    ],
)
def test_what_is_not_verified_is_named_with_its_reason(scenario: str, kind: str, reason: str) -> None:
    unsupported = launch_program(recorded(scenario).thunks).unsupported
    assert any(each.thunk.kind == kind and reason in each.reason for each in unsupported)
    assert all(each.thunk.name in str(each) for each in unsupported)


def test_a_copy_on_the_device() -> None:
    (step,) = launch_program([copy_thunk(CopyDirection.DEVICE_TO_DEVICE)]).steps
    assert isinstance(step, Copy)
    assert (step.destination.allocation, step.source.allocation) == (1, 0)


@pytest.mark.parametrize("direction", [CopyDirection.DEVICE_TO_HOST, CopyDirection.UNSPECIFIED])
def test_a_copy_that_leaves_the_device_is_not_ours(direction: CopyDirection) -> None:
    program = launch_program([copy_thunk(direction)])
    assert not program.steps
    assert direction.value in program.unsupported[0].reason


def test_a_copy_between_different_sizes_is_not_ours() -> None:
    assert launch_program([copy_thunk(CopyDirection.DEVICE_TO_DEVICE, (64, 32))]).unsupported


def test_nesting_in_sequence_is_resolved_and_zero_fills_are_commands() -> None:
    fill = Thunk(
        ThunkKind("kMemzero"), 2, "memzero", (BufferUse(BufferAllocationSlice(3, 0, 8), Access.WRITE),)
    )
    inner = copy_thunk(CopyDirection.DEVICE_TO_DEVICE)
    steps = launch_program([Thunk(ThunkKind("kSequential"), 0, "", nested=((fill, inner),))]).steps
    assert [type(step) for step in steps] == [Fill, Copy]
