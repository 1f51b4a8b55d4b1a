from __future__ import annotations

import pytest

from jax_cmdbuf.executable.async_regions import OpenStreams, find_region
from jax_cmdbuf.executable.thunks import AsyncInfo, Thunk, ThunkKind


def sequence(text: str) -> list[Thunk]:
    """One thunk per character: a capital starts an operation, its small letter is done, a dot is a kernel."""
    thunks = []
    for number, character in enumerate(text):
        info = AsyncInfo(ord(character.lower()), ("communication", 0)) if character != "." else None
        kind = "kCustomKernel" if info is None else "kAsyncStart" if character.isupper() else "kAsyncDone"
        thunks.append(Thunk(ThunkKind(kind), number, character, info=info))
    return thunks


@pytest.mark.parametrize(
    ("text", "start", "length"),
    [
        ("Aa", 0, 2),
        ("A..a.", 0, 4),
        (".A.a", 1, 3),
        ("A.B.a.b", 0, 7),  # overlapping operations stay together
        ("A.B.b.a", 0, 7),
        ("A.B.b.a", 2, 3),
        ("AaBb", 0, 2),  # the shortest stretch
        ("A.B.a", 0, 0),  # one never ends
        ("A.b.a", 0, 0),  # something else ends
        ("A", 0, 0),
    ],
)
def test_regions(text: str, start: int, length: int) -> None:
    assert find_region(sequence(text), start) == length


def test_a_stream_is_open_from_an_untaken_start_to_its_done() -> None:
    streams = OpenStreams()
    start = sequence("A")
    other = [Thunk(ThunkKind("kAsyncStart"), 1, "x", info=AsyncInfo(9, ("communication", 1)))]
    assert streams.blocking(start) is None
    streams.start(AsyncInfo(7, ("communication", 0)))
    streams.start(AsyncInfo(8, ("communication", 0)))
    assert streams.blocking(start) is start[0]
    assert streams.blocking(other) is None
    assert streams.blocking([Thunk(ThunkKind("kWhile"), 2, "w", nested=((), tuple(start)))]) is start[0]
    streams.done(AsyncInfo(7))
    assert streams.blocking(start) is start[0], "the other operation is still running"
    streams.done(AsyncInfo(8))
    assert streams.blocking(start) is None


def test_an_inner_list_sees_outer_streams_but_does_not_close_them() -> None:
    outer = OpenStreams()
    outer.start(AsyncInfo(7, ("communication", 0)))
    inner = OpenStreams(outer)
    innermost = OpenStreams(inner)
    for streams in (inner, innermost):
        streams.done(AsyncInfo(7))
        assert streams.blocking(sequence("A"))
    inner.start(AsyncInfo(9, ("communication", 1)))
    assert not outer.blocking(
        [Thunk(ThunkKind("kAsyncStart"), 1, "x", info=AsyncInfo(1, ("communication", 1)))]
    )
