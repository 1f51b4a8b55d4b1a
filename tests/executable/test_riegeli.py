from __future__ import annotations

import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.highway_hash import riegeli_hash
from jax_cmdbuf.executable.riegeli import HashCheck, is_riegeli, read_records

BLOCK, BLOCK_HEADER = 1 << 16, 24


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def snappy(content: bytes) -> bytes:
    return varint(len(content)) + bytes(cramjam.snappy.compress_raw(content))


def chunk(
    content: bytes, kind: str = "r", count: int = 0, decoded_size: int = 0, data_hash: int | None = None
) -> bytes:
    hashed = riegeli_hash(content) if data_hash is None else data_hash
    rest = struct.pack("<4Q", len(content), hashed, count << 8 | ord(kind), decoded_size)
    return struct.pack("<Q", riegeli_hash(rest)) + rest + content


def records_chunk(records: list[bytes], compress: bool = False, **changes: int) -> bytes:
    sizes, values = b"".join(varint(len(one)) for one in records), b"".join(records)
    if compress:
        sizes, values = snappy(sizes), snappy(values)
    content = (b"s" if compress else b"\0") + varint(len(sizes)) + sizes + values
    fields = {"count": len(records), "decoded_size": sum(map(len, records)), **changes}
    return chunk(content, **fields)  # type: ignore[arg-type]


def compressed_chunk(values: bytes) -> bytes:
    sizes = snappy(b"\x04")
    return chunk(b"s" + varint(len(sizes)) + sizes + values, count=1, decoded_size=4)


def file_of(*chunks: bytes) -> bytes:
    """A file: a signature chunk, the chunks, and a header at every block boundary."""
    stream = chunk(b"", "s") + b"".join(chunks)
    parts = []
    for start in range(0, len(stream), BLOCK - BLOCK_HEADER):
        # Readers need not follow these two numbers; the first header is the same in every file.
        header = struct.pack("<2Q", 0, 64) if start == 0 else struct.pack("<2Q", BLOCK, BLOCK)
        parts.append(
            struct.pack("<Q", riegeli_hash(header)) + header + stream[start : start + BLOCK - BLOCK_HEADER]
        )
    return b"".join(parts)


def read(data: bytes) -> list[bytes]:
    return read_records(data, HashCheck(1 << 20))


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1), max_size=4), st.booleans())
def test_records_come_back(chunks: list[list[bytes]], compress: bool) -> None:
    data = file_of(*(records_chunk(records, compress) for records in chunks))
    assert is_riegeli(data)
    assert read(data) == [record for records in chunks for record in records]


@pytest.mark.parametrize("compress", [False, True])
def test_block_headers_inside_chunks_are_dropped(compress: bool) -> None:
    records = [bytes(range(256)) * 400, b"x" * 100_000, b"end"]
    assert read(file_of(records_chunk(records, compress))) == records


@given(st.data())
def test_every_cut_is_noticed(data: st.DataObject) -> None:
    whole = file_of(records_chunk([b"one", b"two"]), records_chunk([b"three"], compress=True))
    whole_chunks = {len(whole), 64, 64 + len(records_chunk([b"one", b"two"]))}
    size = data.draw(st.integers(0, len(whole)).filter(lambda size: size not in whole_chunks and size))
    with pytest.raises(ContainerError):
        read(whole[:size])


@given(st.data())
def test_every_flipped_bit_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(file_of(records_chunk([b"one", b"two"]), records_chunk([b"three"] * 40, compress=True)))
    position = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[position // 8] ^= 1 << position % 8
    with pytest.raises(ContainerError):
        read(bytes(whole))


def test_beyond_the_budget_only_the_structure_is_checked() -> None:
    wrong = file_of(records_chunk([b"record"], data_hash=1))
    with pytest.raises(ContainerError, match="checksum of a chunk"):
        read(wrong)
    assert read_records(wrong, HashCheck(0)) == [b"record"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (chunk(b"", "t"), "type 't'"),
        (chunk(b"", "r"), "empty"),
        (chunk(b"b\x00"), "brotli"),
        (chunk(b"z\x00"), "zstd"),
        (chunk(b"q\x00"), "unknown compression"),
        (chunk(b"\x00\x09\x01"), "run past its end"),
        (records_chunk([b"abc"], count=2), "contradicts"),
        (records_chunk([b"abc"], decoded_size=4), "contradicts"),
        (chunk(b"\x00\x01\x05abc", count=1, decoded_size=3), "past the end"),
        (chunk(b"\x00\x02\x01\x01abc", count=2, decoded_size=3), "do not fill"),
        (chunk(b"\x00\x02\x83\x83", count=1), "number"),
        (compressed_chunk(varint(1 << 40) + b"xxxx"), "claims to hold"),
        (compressed_chunk(b"\x04\x05xxxx"), "different sizes"),
        (compressed_chunk(b"\x04\x04\xf0"), "decompress"),
        (chunk(b"\x00", count=1 << 50), "number in it"),
    ],
)
def test_contradictions_are_named(bad: bytes, message: str) -> None:
    with pytest.raises(ContainerError, match=message):
        read(file_of(bad))


def test_a_chunk_longer_than_the_file_is_refused_before_it_is_read() -> None:
    rest = struct.pack("<4Q", 1 << 62, 0, 1 << 8 | ord("r"), 1 << 62)
    header = struct.pack("<Q", riegeli_hash(rest)) + rest
    with pytest.raises(ContainerError, match="ends inside a chunk"):
        read(file_of(header))
