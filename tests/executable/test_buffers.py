from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.executable.buffers import Access, BufferAllocation, BufferAllocationSlice, BufferUse


@pytest.mark.parametrize(
    ("allocation", "parameter", "input_or_output", "temp"),
    [
        (BufferAllocation(0, 4), False, False, True),
        (BufferAllocation(0, 4, parameter_number=0), True, True, False),
        (BufferAllocation(0, 4, maybe_live_out=True), False, True, False),
        (BufferAllocation(0, 4, is_constant=True), False, False, False),
        (BufferAllocation(0, 4, is_thread_local=True), False, False, False),
        (BufferAllocation(0, 4, is_tuple=True), False, False, True),
    ],
)
def test_predicates(allocation: BufferAllocation, parameter: bool, input_or_output: bool, temp: bool) -> None:
    assert allocation.is_entry_computation_parameter == parameter
    assert allocation.is_input_or_output == input_or_output
    assert allocation.is_preallocated_temp_buffer == temp


slices = st.builds(BufferAllocationSlice, st.integers(0, 1), st.integers(0, 6), st.integers(0, 4))


@given(slices, slices)
def test_slices_overlap_where_they_share_a_byte(
    one: BufferAllocationSlice, other: BufferAllocationSlice
) -> None:
    def cover(piece: BufferAllocationSlice) -> set[tuple[int, int]]:
        return {(piece.allocation, at) for at in range(piece.offset, piece.offset + piece.size)}

    if one.size and other.size:
        assert one.overlaps(other) == bool(cover(one) & cover(other))
    assert one.overlaps(other) == other.overlaps(one)


def test_uses_know_whether_they_write() -> None:
    piece = BufferAllocationSlice(0, 0, 4)
    assert BufferUse(piece, Access.WRITE).is_write
    assert not BufferUse(piece, Access.READ).is_write
