"""Feeds damaged serialized executables to the reader and reports what it made of them.

    python tools/fuzz_container.py [--count 10000] [--seed 0] [--packed
    tests/data/executable/executables.tar.xz]

Every input must end in a ContainerError of one sentence or, where the damage lies in bytes that say nothing
(padding of a gzip header, for instance), in the same program as the undamaged file. Exit status 1 if one does
not, takes longer than two seconds, or memory grows beyond the limit.
"""

from __future__ import annotations

import argparse
import gzip
import random
import resource
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.executable import Executable

# A release each: 0.12, 0.11 from a real GPU, 0.10; and one with async regions and loops.
BASES = ("mlp_default", "va_remap-scan_loop", "v10_mlp_cublas", "ovl_while")
SLOW_SECONDS = 2.0
MEMORY_LIMIT = 1 << 30  # bytes of resident memory

Damage = Callable[[random.Random, bytes], bytes]


def truncated(source: random.Random, data: bytes) -> bytes:
    return data[: source.randrange(len(data))]


def flipped(source: random.Random, data: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 8, 64))):
        damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
    return bytes(damaged)


def overwritten(source: random.Random, data: bytes) -> bytes:
    start = source.randrange(len(data))
    length = source.randrange(1, 400)
    filling = source.choice((b"\0", b"\xff", None))
    noise = source.randbytes(length) if filling is None else filling * length
    return data[:start] + noise + data[start + length :]


def cut_out(source: random.Random, data: bytes) -> bytes:
    start = source.randrange(len(data))
    return data[:start] + data[start + source.randrange(1, 2000) :]


def doubled(source: random.Random, data: bytes) -> bytes:
    start, end = sorted((source.randrange(len(data)), source.randrange(len(data))))
    return data[:end] + data[start:]


def random_bytes(source: random.Random, data: bytes) -> bytes:
    return source.randbytes(source.choice((0, 1, 10, 100, 5000)))


def random_behind_header(source: random.Random, data: bytes) -> bytes:
    keep = source.choice((1, 20, 300, 400, 1000))
    return data[:keep] + source.randbytes(3000)


def gzipped(damage: Damage) -> Damage:
    """Damage inside an intact gzip file."""
    return lambda source, data: gzip.compress(damage(source, data), 1)


def after_gzip(damage: Damage) -> Damage:
    """Damage of the gzip file itself."""
    return lambda source, data: damage(source, gzip.compress(data, 1))


PLAIN: tuple[Damage, ...] = (
    truncated,
    flipped,
    flipped,
    overwritten,
    cut_out,
    doubled,
    random_bytes,
    random_behind_header,
)
DAMAGES: tuple[Damage, ...] = (
    *PLAIN,
    *(after_gzip(damage) for damage in (truncated, flipped, overwritten)),
    *(gzipped(damage) for damage in (truncated, flipped, overwritten)),
)


def outcome(data: bytes, original: Executable) -> str:
    """ "refused", "unchanged" (decoded to the same program), or what is wrong."""
    try:
        decoded = Executable.from_bytes(data, source="fuzzed")
    except ContainerError as error:
        text = str(error)
        return "refused" if text and "\n" not in text else f"bad message {text!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    same = (decoded.thunks, decoded.allocations, decoded.debug_options) == (
        original.thunks,
        original.allocations,
        original.debug_options,
    )
    return "unchanged" if same else "changed without notice"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packed", default="tests/data/executable/executables.tar.xz")
    options = parser.parse_args()
    with tarfile.open(options.packed) as tar:
        bases = [tar.extractfile(f"{name}.bin").read() for name in BASES]  # type: ignore[union-attr]
    originals = [Executable.from_bytes(base) for base in bases]
    counts: Counter[str] = Counter()
    slowest = 0.0
    for number in range(options.count):
        source = random.Random(f"{options.seed}-{number}")
        which = number % len(bases)
        damage = source.choice(DAMAGES)
        data = damage(source, bases[which])
        started = time.perf_counter()
        found = "unchanged" if data == bases[which] else outcome(data, originals[which])
        slowest = max(slowest, time.perf_counter() - started)
        counts[found] += 1
        if found not in ("refused", "unchanged"):
            print(f"input {number} of {BASES[which]}: {found}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(f"{options.count} inputs: {dict(counts)}; slowest {slowest:.3f} s, memory {memory >> 20} MiB")
    healthy = set(counts) <= {"refused", "unchanged"} and slowest < SLOW_SECONDS and memory < MEMORY_LIMIT
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
