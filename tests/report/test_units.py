from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.report.units import bytes_text, count_text, flag_text, share_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2 << 20, "2 MiB"),
        (3 << 60, "3072 PiB"),
    ],
)
def test_bytes(size: int, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (15, 16, "15 of 16 (94 %)"),
        (0, 0, "0 of 0"),
        (1, 1000, "1 of 1000 (1 %)"),
        (999, 1000, "999 of 1000 (99 %)"),
    ],
)
def test_shares(part: int, whole: int, text: str) -> None:
    assert share_text(part, whole) == text


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_only_all_is_100_and_only_none_is_0(part: int, whole: int) -> None:
    part = min(part, whole)
    text = share_text(part, whole)
    assert ("(100 %)" in text) == (part == whole)
    assert ("(0 %)" in text) == (part == 0)


def test_flags_read_as_they_are_written() -> None:
    assert flag_text(True) == "true"
    assert flag_text(("FUSION", "WHILE")) == "FUSION,WHILE"
    assert flag_text({"a": "1", "b": "2"}) == "a=1,b=2"
    assert flag_text("text") == "text"
    assert flag_text(3) == "3"


def test_one_thing_is_singular() -> None:
    assert [count_text(number, "thunk") for number in (0, 1, 2)] == ["0 thunks", "1 thunk", "2 thunks"]
