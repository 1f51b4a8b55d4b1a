"""Numbers as people read them. Invariant: the same number gives the same text in every report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["bytes_text", "count_text", "flag_text", "share_text"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(size: int) -> str:
    """Bytes with a binary unit and at most one decimal: "512 B", "1.5 MiB"."""
    value = float(size)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    number = f"{value:.1f}".removesuffix(".0")
    return f"{number} {unit}"


def count_text(number: int, noun: str) -> str:
    """A number of things: "1 thunk", "2 thunks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def share_text(part: int, whole: int) -> str:
    """A part of a whole: "15 of 16 (94 %)"; a share that is not quite all or none never rounds to it."""
    if whole == 0:
        return "0 of 0"
    percent = 100 * part / whole
    shown = round(percent)
    if 0 < part < whole:
        shown = min(max(shown, 1), 99)
    return f"{part} of {whole} ({shown} %)"


def flag_text(value: object) -> str:
    """A flag's value as it would stand in ``XLA_FLAGS``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
