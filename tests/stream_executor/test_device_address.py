from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress, round_up


def test_equality_is_pointer_and_size():
    assert DeviceAddress(8, 4) == DeviceAddress(8, 4)
    assert len({DeviceAddress(8, 4), DeviceAddress(8, 4), DeviceAddress(8, 5), DeviceAddress(9, 4)}) == 3


def test_null():
    assert NULL_ADDRESS.is_null
    assert DeviceAddress(0, 5).is_null
    assert not DeviceAddress(1, 0).is_null


def test_addresses_do_not_change():
    with pytest.raises(AttributeError):
        NULL_ADDRESS.opaque = 5


def test_slices():
    address = DeviceAddress(100, 10)
    assert address.slice(0, 10) == address
    assert address.slice(10, 0) == DeviceAddress(110, 0)
    assert address.slice(3, 4) == DeviceAddress(103, 4)
    assert address.end == 110


@pytest.mark.parametrize(("offset", "size"), [(0, 11), (11, 0), (-1, 2), (5, -1), (9, 2)])
def test_a_slice_stays_inside(offset, size):
    with pytest.raises(StatusError) as caught:
        DeviceAddress(100, 10).slice(offset, size)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


@given(*[st.integers(0, 12)] * 4)
def test_overlap_is_a_common_byte(first, first_size, second, second_size):
    a, b = DeviceAddress(first, first_size), DeviceAddress(second, second_size)
    common = set(range(a.opaque, a.end)) & set(range(b.opaque, b.end))
    assert a.overlaps(b) == b.overlaps(a) == bool(common and not (a.is_null or b.is_null))


def test_round_up():
    assert [round_up(size, 8) for size in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_text():
    assert str(DeviceAddress(255, 3)) == "0xff (3 bytes)"
