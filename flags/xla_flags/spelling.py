"""Flags as text that XLA reads back: quoting, and the one canonical spelling of a value.

The inverse of `tokens` and of the setters. Invariant: tokenizing what `flag_text` gives yields one token,
whose text is the name, `=` and the value; a canonical value means to its setter what the original means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from xla_flags.literals import BLANK, ascii_lower, ascii_upper, parse_bool, parse_float32, parse_int
from xla_flags.schema import BOOL_KINDS, FlagKind, FlagSpec
from xla_flags.tokens import WHITESPACE

_NAME = re.compile(r"[A-Za-z0-9_-]*")
_NEEDS_QUOTES = re.compile(rf"^['\"]|[{WHITESPACE}]")
_DOUBLE_QUOTED = re.compile(r'[\\"]')


def quoted(value: str) -> str:
    """A value as it is written after `=`: bare where that is possible, else in quotes."""
    if not _NEEDS_QUOTES.search(value):
        return value
    if "'" not in value:
        return f"'{value}'"
    return '"' + _DOUBLE_QUOTED.sub(r"\\\g<0>", value) + '"'


def token_text(text: str) -> str:
    """A token's text (`Token.text`) as it must be written to be read as that token again."""
    name, equals, value = text.partition("=")
    # Quotes mean something only right after a clean name; after any other they are ordinary characters.
    return name + equals + (quoted(value) if _NAME.fullmatch(name) else value)


def flag_text(name: str, value: str) -> str:
    """A flag as it is written.

    Args:
      name: without dashes.
      value: as its setter receives it.
    """
    return f"--{name}={quoted(value)}"


def join(texts: Iterable[str]) -> str:
    """Several flags as one value of `XLA_FLAGS`."""
    return " ".join(texts)


def canonical_value(flag: FlagSpec, value: str) -> str:
    """The one spelling of a good value; a bad one, or one whose every character counts, stays as it is."""
    kind = flag.kind
    if kind in BOOL_KINDS:
        parsed = parse_bool(value)
        return value if parsed is None else str(parsed).lower()
    if kind in (FlagKind.INT32, FlagKind.INT64):
        number = parse_int(value)
        return value if number is None else str(number)
    if kind is FlagKind.FLOAT:
        real = parse_float32(value)
        # Nine digits tell any two float32 apart.
        return value if real is None else min(f"{real:.9g}", repr(real), key=len)
    if kind is FlagKind.ENUM_ANY_CASE:
        return flag.words.get(ascii_lower(value), ascii_upper(value))
    if kind in (FlagKind.UPPER_STRING, FlagKind.ASYNC_COLLECTIVES):
        return ascii_upper(value)
    if kind is FlagKind.WORD_ANY_CASE:
        return ascii_lower(value)
    if kind is FlagKind.ENUM_LIST:
        pieces = (ascii_upper(piece.strip(BLANK)) for piece in value.split(","))
        # Only commas change nothing, which no shorter text says.
        return ",".join(filter(None, pieces)) or value
    return value


def python_value_text(value: object) -> str:
    """A Python value, as a library would give it, as its flag's text.

    Raises:
      TypeError: no flag has values of that type.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return ",".join(f"{key}={python_value_text(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ",".join(python_value_text(each) for each in value)
    raise TypeError(f"a flag has no value of type {type(value).__name__}: {value!r}")
