"""Reads the records of a Riegeli file held in memory.

Follows Google's published file format (``riegeli/doc/riegeli_records_file_format.md``): 64 KiB blocks that
each begin with a 24-byte header, and inside them chunks of records, plain or compressed with snappy.
Invariant: every header's checksum, every declared size and every record count is checked before anything of
that size is allocated, so memory stays within a small multiple of the input.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import cramjam

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.highway_hash import riegeli_hash
from jax_cmdbuf.executable.wire import read_varint

__all__ = ["SIGNATURE", "HashCheck", "is_riegeli", "read_records"]

_BLOCK, _BLOCK_HEADER, _CHUNK_HEADER = 1 << 16, 24, 40
# What every file begins with: the checksum of the first block header, which never differs, and that header's
# start.
SIGNATURE = bytes.fromhex("83af70d10d884a3f") + bytes(8)
# Snappy's longest copy is 64 bytes from 3 bytes of input; more than that is a lie.
_MAX_SNAPPY_RATIO = 24
_UNSUPPORTED_COMPRESSION = {ord("b"): "brotli", ord("z"): "zstd"}


@dataclass
class HashCheck:
    """How many more bytes of chunk data to verify; what is beyond is checked by structure only.

    Hashing runs at a few MB/s in Python, so a caller sets a budget, or 0 for bytes it trusts.
    """

    bytes_left: int = 0

    def verify(self, content: bytes, expected: int) -> bool:
        """Whether the content matches; True without a look once the budget is spent."""
        if len(content) > self.bytes_left:
            return True
        self.bytes_left -= len(content)
        return riegeli_hash(content) == expected


def is_riegeli(data: bytes) -> bool:
    """Whether the bytes begin as every Riegeli file does."""
    return data.startswith(SIGNATURE)


def read_records(data: bytes, check: HashCheck) -> list[bytes]:
    """All records of a file, in order.

    Args:
      data: the whole file.
      check: budget for verifying chunk data.

    Raises:
      ContainerError: damaged, truncated, or of a kind that XLA has not been seen to write.
    """
    stream = _without_block_headers(data)
    records: list[bytes] = []
    at = 0
    if len(stream) < _CHUNK_HEADER:
        raise ContainerError("it ends before the signature chunk that every Riegeli file begins with")
    while at < len(stream):
        header = stream[at : at + _CHUNK_HEADER]
        if len(header) < _CHUNK_HEADER:
            raise ContainerError("it ends inside a chunk header")
        header_hash, size, data_hash, kind_and_count, decoded_size = struct.unpack("<5Q", header)
        if riegeli_hash(header[8:]) != header_hash:
            raise ContainerError("the checksum of a chunk header is wrong")
        at += _CHUNK_HEADER
        content = stream[at : at + size] if size <= len(stream) - at else None
        if content is None:
            raise ContainerError(f"it ends inside a chunk of {size} bytes")
        at += size
        if not check.verify(content, data_hash):
            raise ContainerError("the checksum of a chunk is wrong")
        records += _chunk_records(content, chr(kind_and_count & 0xFF), kind_and_count >> 8, decoded_size)
    return records


def _without_block_headers(data: bytes) -> bytes:
    parts = []
    for start in range(0, len(data), _BLOCK):
        header = data[start : start + _BLOCK_HEADER]
        if len(header) < _BLOCK_HEADER:
            raise ContainerError("it ends inside a block header")
        if riegeli_hash(header[8:]) != int.from_bytes(header[:8], "little"):
            raise ContainerError("the checksum of a block header is wrong")
        parts.append(data[start + _BLOCK_HEADER : start + _BLOCK])
    return b"".join(parts)


def _chunk_records(content: bytes, kind: str, count: int, decoded_size: int) -> list[bytes]:
    if kind in "sp" and count == 0:  # signature and padding hold nothing
        return []
    if kind != "r":
        raise ContainerError(f"it has a chunk of type {kind!r}, which this reader does not know")
    if not content:
        raise ContainerError("a chunk of records is empty")
    compression = content[0]
    if compression in _UNSUPPORTED_COMPRESSION:
        raise ContainerError(
            f"a chunk is compressed with {_UNSUPPORTED_COMPRESSION[compression]}, not snappy"
        )
    if compression not in (0, ord("s")):
        raise ContainerError(f"a chunk has the unknown compression type {compression}")
    sizes_size, at = read_varint(content, 1)
    if sizes_size > len(content) - at:
        raise ContainerError("the record sizes of a chunk run past its end")
    sizes = content[at : at + sizes_size]
    values = content[at + sizes_size :]
    if compression:
        sizes, values = _unsnappy(sizes), _unsnappy(values)
    return _split(sizes, values, count, decoded_size)


def _unsnappy(block: bytes) -> bytes:
    """Riegeli's compressed block: decoded size, then raw snappy, which repeats it."""
    size, at = read_varint(block, 0)
    if size > _MAX_SNAPPY_RATIO * len(block):
        raise ContainerError(f"a chunk of {len(block)} bytes claims to hold {size}")
    if read_varint(block, at)[0] != size:
        raise ContainerError("a chunk states two different sizes")
    if size == 0:
        return b""
    try:
        decoded = bytes(cramjam.snappy.decompress_raw(block[at:]))
    except cramjam.DecompressionError as error:
        raise ContainerError("a chunk does not decompress") from error
    if len(decoded) != size:
        raise ContainerError("a chunk decompresses to another size than it states")
    return decoded


def _split(sizes: bytes, values: bytes, count: int, decoded_size: int) -> list[bytes]:
    if count > len(sizes) or decoded_size != len(values):
        raise ContainerError("a chunk's header contradicts its content")
    records = []
    at = start = 0
    for _ in range(count):
        size, at = read_varint(sizes, at)
        if size > len(values) - start:
            raise ContainerError("a record runs past the end of its chunk")
        records.append(values[start : start + size])
        start += size
    if at != len(sizes) or start != len(values):
        raise ContainerError("the records of a chunk do not fill it")
    return records
