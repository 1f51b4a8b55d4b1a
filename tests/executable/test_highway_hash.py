from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from jax_cmdbuf.executable.highway_hash import riegeli_hash
from jax_cmdbuf.executable.wire import read_varint


def test_first_block_header_of_every_file() -> None:
    # Riegeli's documentation gives these bytes as the beginning of every file.
    assert riegeli_hash(struct.pack("<2Q", 0, 64)).to_bytes(8, "little").hex() == "83af70d10d884a3f"


@pytest.mark.parametrize(
    "name", ["mlp_default", "v11_donate", "rng_rbg", "ovl_while", "conv", "fft", "bcast"]
)
def test_chunks_that_xla_wrote(name: str, serialized: Callable[[str], bytes]) -> None:
    """Chunk sizes are arbitrary, so this covers many remainders modulo the packet size."""
    data = serialized(name)
    size, at = read_varint(data, 0)
    file = data[at + size :]
    assert len(file) < 1 << 16, "no block boundary inside, so chunks can be cut out directly"
    position, seen = 24, 0
    while position < len(file):
        header_hash, length, data_hash = struct.unpack_from("<3Q", file, position)
        assert riegeli_hash(file[position + 8 : position + 40]) == header_hash
        assert riegeli_hash(file[position + 40 : position + 40 + length]) == data_hash
        position += 40 + length
        seen += 1
    assert seen >= 2


def test_remainders_of_every_length_differ() -> None:
    data = bytes(range(1, 65))
    assert len({riegeli_hash(data[:length]) for length in range(65)}) == 65
