from __future__ import annotations

import contextlib

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.wire import read_fields, read_varint


@pytest.mark.parametrize(
    ("data", "value", "after"),
    [(b"\0", 0, 1), (b"\x7f", 127, 1), (b"\x80\x01", 128, 2), (b"\xff" * 9 + b"\x01", (1 << 64) - 1, 10)],
)
def test_varints(data: bytes, value: int, after: int) -> None:
    assert read_varint(data, 0) == (value, after)
    assert read_varint(b"??" + data + b"?", 2) == (value, after + 2)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 20, b"\xff" * 9 + b"\x02"])
def test_what_is_no_varint_is_refused(data: bytes) -> None:
    with pytest.raises(ContainerError, match="number"):
        read_varint(data, 0)


def test_fields_of_a_message() -> None:
    message = descriptor_pb2.FieldDescriptorProto(name="field", number=300)
    assert list(read_fields(message.SerializeToString())) == [(1, b"field"), (3, 300)]
    assert list(read_fields(b"\x09" + bytes(8) + b"\x15" + bytes(4))) == [(1, bytes(8)), (2, bytes(4))]


@given(st.binary(max_size=40))
def test_any_bytes_are_fields_or_an_error(data: bytes) -> None:
    fields = []
    with contextlib.suppress(ContainerError):
        fields = list(read_fields(data))
    for number, value in fields:
        assert number > 0
        assert isinstance(value, int) or len(value) <= len(data)
