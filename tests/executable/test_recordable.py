"""Which programs can be recorded by us, and what is named as standing in the way."""

from dataclasses import replace
from pathlib import Path

import pytest

from jax_cmdbuf.executable.buffers import Access, BufferAllocation, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.executable import Constant, Executable
from jax_cmdbuf.executable.recordable import unsupported_thunks
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


def program(*thunks: Thunk) -> Executable:
    return Executable("m", (BufferAllocation(0, 64), BufferAllocation(1, 256)), thunks)


@pytest.mark.parametrize(
    "scenario",
    ["mlp_same", "bf16_mlp", "train_donate", "attn_block", "big_constant", "real_transformer_adamw_donate"],
)
def test_a_program_of_kernels_can_be_recorded(scenario: str) -> None:
    assert not unsupported_thunks(recorded(scenario))


@pytest.mark.parametrize(
    ("scenario", "kind", "reason"),
    [
        ("conv", "kConvolution", "only kernels"),
        ("while_loop", "kWhile", "only kernels"),
        ("sort_fft", "kFft", "only kernels"),
    ],
)
def test_what_is_not_verified_is_named_with_its_reason(scenario: str, kind: str, reason: str) -> None:
    unsupported = unsupported_thunks(recorded(scenario))
    assert any(each.thunk.kind == kind and reason in each.reason for each in unsupported)
    assert all(each.thunk.name in str(each) for each in unsupported)


def test_a_copy_on_the_device_also_in_a_sequence() -> None:
    thunk = copy_thunk(CopyDirection.DEVICE_TO_DEVICE)
    assert not unsupported_thunks(program(Thunk(ThunkKind("kSequential"), 0, "", nested=((thunk,),))))


@pytest.mark.parametrize("direction", [CopyDirection.DEVICE_TO_HOST, CopyDirection.UNSPECIFIED])
def test_a_copy_that_leaves_the_device_is_left_to_xla(direction: CopyDirection) -> None:
    (found,) = unsupported_thunks(program(copy_thunk(direction)))
    assert direction.value in found.reason


def test_a_copy_between_different_sizes_is_left_to_xla() -> None:
    assert unsupported_thunks(program(copy_thunk(CopyDirection.DEVICE_TO_DEVICE, (64, 32))))


def test_a_constant_without_bytes_is_left_to_xla() -> None:
    executable = replace(program(copy_thunk(CopyDirection.DEVICE_TO_DEVICE)), constants=(Constant("c", 0),))
    (found,) = unsupported_thunks(executable)
    assert "constant allocation 0" in found.reason
