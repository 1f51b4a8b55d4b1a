"""The few protobuf wire-format facts that are needed before any message class is at hand.

Invariant: nothing here reads past the bytes it was given; what does not fit is a ContainerError.
"""

from __future__ import annotations

from collections.abc import Iterator

from jax_cmdbuf.errors import ContainerError

__all__ = ["read_fields", "read_varint"]

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint at ``at``: (value below 2**64, position after it).

    Raises:
      ContainerError: the data ends inside it, or it is longer than ten bytes.
    """
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, at
        shift += 7
    raise ContainerError("a number in it is cut off or too long")


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a serialized message: (number, varint value or content bytes), in order.

    Raises:
      ContainerError: the bytes are no message.
    """
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise ContainerError("a message in it has a field number 0")
        if wire_type == _VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if wire_type == _LENGTH_DELIMITED:
            size, at = read_varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ContainerError(f"a message in it has the wire type {wire_type}")
        if size > len(data) - at:
            raise ContainerError("a message in it is cut off")
        yield number, data[at : at + size]
        at += size
