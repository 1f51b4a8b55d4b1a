from __future__ import annotations

import gzip
import random
import resource
from collections.abc import Callable

import pytest

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.container import read_container
from jax_cmdbuf.executable.executable import Executable

Serialized = Callable[[str], bytes]
RELEASES = ("mlp_default", "va_remap-scan_loop", "v10_mlp_cublas")


@pytest.mark.parametrize("name", RELEASES)
def test_every_layout_is_read_gzipped_or_not(name: str, serialized: Serialized) -> None:
    data = serialized(name)
    plain = read_container(data)
    packed = read_container(gzip.compress(data))
    twice = read_container(gzip.compress(data[:100]) + gzip.compress(data[100:]))
    assert plain.outer_is_riegeli == (not name.startswith("v10"))
    assert plain.executable == packed.executable == twice.executable
    assert len(plain.executable.thunks) > 0  # type: ignore[attr-defined]
    assert not plain.outer.serialized_executable  # type: ignore[attr-defined]


def refusal(data: bytes) -> str:
    with pytest.raises(ContainerError) as caught:
        Executable.from_bytes(data, source="x.bin")
    text = str(caught.value)
    assert text.startswith("x.bin ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"HloModule jit_f, entry_computation_layout={()->f32[]}", "IFRT header"),
        (b"\x00", "IFRT header"),
        (b"\xff\xff\xff\xff\x0f", "IFRT header"),
        (b"\x7fELF" + bytes(200), "header|message|number"),
        (b"\x1f\x8b", "gzip data"),
        (gzip.compress(b"", mtime=0), "number|IFRT"),
        (gzip.compress(b"hello", mtime=0)[:-5], "ends early"),
        (b"\x0b\x12\x09other_run", "pjrt_ifrt"),
        (b"\x0b\x12\x09pjrt_ifrt", "holds no"),
    ],
)
def test_other_files_are_refused_in_one_sentence(data: bytes, message: str) -> None:
    import re

    assert re.search(message, refusal(data))


def test_a_gzip_bomb_is_stopped() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "no IFRT header" in refusal(gzip.compress(bytes(8 << 20), 1) * 1000)
    header = b"\xff\x7f\x08\x03\x12\x09pjrt_ifrt"
    assert "more than 64 MiB" in refusal(gzip.compress(header + bytes(72 << 20), 6))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400 << 10, f"{grown} KiB"


def test_a_header_of_another_module_is_noticed(serialized: Serialized) -> None:
    data = serialized("mlp_default")
    assert data.count(b"jit_f") >= 1
    assert "disagree about the module's name" in refusal(data.replace(b"jit_f", b"jit_g", 1))


def damage(source: random.Random, data: bytes) -> bytes:
    """One of: cut, flipped bits, noise over a stretch, a stretch cut out, random bytes."""
    match source.randrange(5):
        case 0:
            return data[: source.randrange(len(data))]
        case 1:
            damaged = bytearray(data)
            for _ in range(source.choice((1, 1, 2, 16))):
                damaged[source.randrange(len(data))] ^= 1 << source.randrange(8)
            return bytes(damaged)
        case 2:
            start, length = source.randrange(len(data)), source.randrange(1, 300)
            return data[:start] + source.randbytes(length) + data[start + length :]
        case 3:
            start = source.randrange(len(data))
            return data[:start] + data[start + source.randrange(1, 2000) :]
        case _:
            return data[: source.choice((0, 20, 400))] + source.randbytes(source.choice((1, 50, 3000)))


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("packing", ["plain", "damaged inside gzip", "damaged gzip"])
def test_damage_is_refused_or_harmless(
    name: str, packing: str, serialized: Serialized, read: Callable[[str], Executable]
) -> None:
    """A cut of the inputs that ``tools/fuzz_container.py`` makes by the thousand."""
    data = gzip.compress(serialized(name), 1) if packing == "damaged gzip" else serialized(name)
    original = read(name)
    harmless = 0
    sentences: set[str] = set()
    for number in range(170):
        damaged = damage(random.Random(f"{name}-{packing}-{number}"), data)
        if packing == "damaged inside gzip":
            damaged = gzip.compress(damaged, 1)
        try:
            found = Executable.from_bytes(damaged, source="damaged")
        except ContainerError as error:
            sentences.add(str(error))
            continue
        harmless += 1
        assert found.thunks == original.thunks
        assert found.allocations == original.allocations
        assert found.debug_options == original.debug_options
    assert harmless < 9, "nearly all damage must be noticed"
    assert not any("\n" in sentence for sentence in sentences)
