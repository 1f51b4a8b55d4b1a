"""Address tables never change, and an unknown persistent set is not an empty one."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.executable.buffers import BufferAllocationSlice
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations, PersistentSet, select
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress

A, B, C = (DeviceAddress(0x200000 * i, 64) for i in (1, 2, 3))


def test_a_copy_with_other_addresses_leaves_the_table_alone():
    owning = BufferAllocations([A, B, NULL_ADDRESS])
    table = owning.with_addresses({1: C})
    assert table.addresses == (A, C, NULL_ADDRESS)
    assert owning == BufferAllocations((A, B, NULL_ADDRESS))
    assert owning.with_addresses({}) is owning
    assert len(owning) == 3
    assert hash(owning) == hash(BufferAllocations([A, B, NULL_ADDRESS]))
    assert owning != "a table"
    assert "0x" not in repr(PersistentSet([1]))


def test_slices_stay_inside_their_allocation():
    table = BufferAllocations([A])
    assert table.slice(BufferAllocationSlice(0, 16, 8)) == DeviceAddress(A.opaque + 16, 8)
    with pytest.raises(StatusError, match="INVALID_ARGUMENT"):
        table.slice(BufferAllocationSlice(0, 60, 8))


@pytest.mark.parametrize("indices", [(), (1,), (2, 0), (0, 1, 2)])
def test_select_gives_a_tuple_for_any_number_of_positions(indices):
    assert select(indices)((A, B, C)) == tuple((A, B, C)[index] for index in indices)


@pytest.mark.parametrize("persistent", [PersistentSet.UNKNOWN, PersistentSet([]), PersistentSet([1])])
def test_a_persistent_set_refuses_a_truth_value(persistent):
    with pytest.raises(TypeError, match="unknown is not empty"):
        bool(persistent)


def test_unknown_and_empty_differ():
    unknown, empty, some = PersistentSet.UNKNOWN, PersistentSet([]), PersistentSet([3, 1, 3])
    assert not unknown.known
    assert empty.known
    assert unknown != empty
    assert some.indices == (1, 3)
    assert 1 in some
    assert 2 not in some
    assert some.dynamic({3, 2, 0}) == (0, 2)
    assert unknown.dynamic({3, 1}) == empty.dynamic({3, 1}) == (1, 3)
    assert hash(some) == hash(PersistentSet([1, 3]))
    assert repr(unknown) == "PersistentSet.UNKNOWN"
    assert some != {1, 3}
