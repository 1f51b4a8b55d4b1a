from __future__ import annotations

import pytest

from jax_cmdbuf.executable.buffers import Access, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.thunks import PRIVATE_ALLOCATION_KINDS, Thunk, ThunkKind


def use(allocation: int) -> BufferUse:
    return BufferUse(BufferAllocationSlice(allocation, 0, 4), Access.READ)


def thunk(number: int, *nested: tuple[Thunk, ...], kind: str = "kWhile") -> Thunk:
    return Thunk(ThunkKind(kind), number, f"t{number}", (use(number),), nested)


def test_uses_and_allocations_include_nested_thunks_in_order() -> None:
    top = thunk(1, (thunk(2), thunk(3, (thunk(4),))), (thunk(5),))
    assert top.uses == tuple(map(use, (1, 2, 3, 4, 5)))
    assert top.allocations == {1, 2, 3, 4, 5}
    assert [one.id for one in top.walk()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", sorted(PRIVATE_ALLOCATION_KINDS))
def test_private_allocations_are_no_uses(kind: str) -> None:
    top = thunk(0, (thunk(1, (thunk(2),), kind=kind),))
    assert top.allocations == {0, 1}
    assert [one.id for one in top.walk()] == [0, 1, 2]
