"""HighwayHash-64 with Riegeli's key: the checksum in Riegeli block and chunk headers.

The algorithm is published by Google (``google/highwayhash``): four 64-bit lanes, 32 bytes a step. Invariant:
the result equals the C reference's for every length; speed is about 8 MB/s, so callers decide what is worth
hashing.
"""

from __future__ import annotations

import struct

__all__ = ["riegeli_hash"]

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_LANES = struct.Struct("<4Q")
_KEY = _LANES.unpack(b"Riegeli/records\n" * 2)
_INIT0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_INIT1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)

# Byte order of the "zipper merge" of two neighbouring lanes (16 bytes); 32 bytes hold two such pairs. Looking
# bytes up with bytes.translate makes the shuffle one C call: source positions are the text, the lanes are the
# table.
_ZIPPER = bytes((3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7))
_SHUFFLE = _ZIPPER + bytes(position + 16 for position in _ZIPPER)
_TABLE_REST = bytes(256 - 32)

_State = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _rotate32(lane: int) -> int:
    return (lane >> 32) | ((lane & _M32) << 32)


def _update(state: _State, content: bytes) -> _State:
    """Absorbs a whole number of 32-byte packets."""
    (a0, a1, a2, a3), (b0, b1, b2, b3), (m0, m1, m2, m3), (n0, n1, n2, n3) = state
    pack, unpack, shuffle, rest = _LANES.pack, _LANES.unpack, _SHUFFLE.translate, _TABLE_REST
    for p0, p1, p2, p3 in _LANES.iter_unpack(content):
        b0 = (b0 + m0 + p0) & _M64
        b1 = (b1 + m1 + p1) & _M64
        b2 = (b2 + m2 + p2) & _M64
        b3 = (b3 + m3 + p3) & _M64
        m0 ^= (b0 & _M32) * (a0 >> 32)
        m1 ^= (b1 & _M32) * (a1 >> 32)
        m2 ^= (b2 & _M32) * (a2 >> 32)
        m3 ^= (b3 & _M32) * (a3 >> 32)
        a0 = (a0 + n0) & _M64
        a1 = (a1 + n1) & _M64
        a2 = (a2 + n2) & _M64
        a3 = (a3 + n3) & _M64
        n0 ^= (a0 & _M32) * (b0 >> 32)
        n1 ^= (a1 & _M32) * (b1 >> 32)
        n2 ^= (a2 & _M32) * (b2 >> 32)
        n3 ^= (a3 & _M32) * (b3 >> 32)
        z0, z1, z2, z3 = unpack(shuffle(pack(b0, b1, b2, b3) + rest))
        a0 = (a0 + z0) & _M64
        a1 = (a1 + z1) & _M64
        a2 = (a2 + z2) & _M64
        a3 = (a3 + z3) & _M64
        z0, z1, z2, z3 = unpack(shuffle(pack(a0, a1, a2, a3) + rest))
        b0 = (b0 + z0) & _M64
        b1 = (b1 + z1) & _M64
        b2 = (b2 + z2) & _M64
        b3 = (b3 + z3) & _M64
    return (a0, a1, a2, a3), (b0, b1, b2, b3), (m0, m1, m2, m3), (n0, n1, n2, n3)


def _absorb_rest(state: _State, rest: bytes) -> _State:
    """Absorbs the last 1 to 31 bytes."""
    size = len(rest)
    v0, v1, mul0, mul1 = state
    v0 = tuple((lane + (size << 32) + size) & _M64 for lane in v0)
    v1 = tuple(_rotate_halves(lane, size) for lane in v1)
    packet = bytearray(32)
    whole, odd = size & ~3, size & 3
    packet[:whole] = rest[:whole]
    if size & 16:
        packet[28:] = rest[-4:]
    elif odd:
        tail = rest[whole:]
        packet[16:19] = bytes((tail[0], tail[odd >> 1], tail[odd - 1]))
    return _update((v0, v1, mul0, mul1), bytes(packet))


def _rotate_halves(lane: int, count: int) -> int:
    low, high = lane & _M32, lane >> 32
    low = ((low << count) | (low >> (32 - count))) & _M32
    high = ((high << count) | (high >> (32 - count))) & _M32
    return low | high << 32


def riegeli_hash(content: bytes) -> int:
    """The 64-bit checksum of ``content`` as Riegeli stores it."""
    v0 = tuple(initial ^ key for initial, key in zip(_INIT0, _KEY, strict=True))
    v1 = tuple(initial ^ _rotate32(key) for initial, key in zip(_INIT1, _KEY, strict=True))
    whole = len(content) & ~31
    state = _update((v0, v1, _INIT0, _INIT1), content[:whole])
    if len(content) != whole:
        state = _absorb_rest(state, content[whole:])
    for _ in range(4):
        v0 = state[0]
        state = _update(state, _LANES.pack(*(_rotate32(v0[lane]) for lane in (2, 3, 0, 1))))
    return sum(lanes[0] for lanes in state) & _M64
