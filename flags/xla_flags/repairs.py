"""Proposals for a value that a flag refuses, for everything but lists: one generator per kind of mistake.

Invariant: a proposal is a guess at what was meant; whoever shows it checks first that it is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from xla_flags.literals import ascii_lower, ascii_upper, parse_bool, parse_int
from xla_flags.migrations import RENAMED_MEMBERS
from xla_flags.nearest import nearest
from xla_flags.schema import FlagKind, FlagSpec


class Repair(NamedTuple):
    """A guess: the diagnostic's code, why the value is refused, what was meant (None: no guess)."""

    code: str
    why: str
    value: str | None


Repairer: TypeAlias = Callable[[FlagSpec, str], Iterator[Repair]]

_TRUE = frozenset(("yes", "y", "on", "t", "enable", "enabled", "active", "01", ".true."))
_FALSE = frozenset(("no", "n", "off", "f", "disable", "disabled", "none", "00", "null", "nil", ".false."))
_UNITS = {
    "nanosecond": "ns", "microsecond": "us", "µs": "us", "millisecond": "ms", "msec": "ms", "second": "s",
    "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h",
}  # fmt: skip
_BINARY_SIZE = re.compile(r"([0-9]+) *([KMGT])iB?", re.IGNORECASE)


def of_bool(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """Words that mean yes or no elsewhere."""
    lower = ascii_lower(value.strip().strip("\"'"))
    why = "a bool is true or false in any case, or 1 or 0"
    if not lower:
        yield Repair("bad-bool", f"nothing follows `=`; {why}", "true")
    if parse_bool(lower) is not None:
        yield Repair("bad-bool", f"blanks or quotes are part of the value; {why}", lower)
    if lower in _TRUE or lower in _FALSE:
        yield Repair("bad-bool", why, "true" if lower in _TRUE else "false")
    for word in ("true", "false"):
        if nearest(lower, [word]) or (len(lower) > 2 and word.startswith(lower)):
            yield Repair("bad-bool", why, word)
    yield Repair("bad-bool", why, None)


def of_false_only(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """A switch that the wheels of jaxlib were built without."""
    if parse_bool(value):
        why = "jaxlib is built without what this turns on, and refuses true"
        yield Repair("not-built-in", why, "false")
    yield from of_bool(flag, value)


def of_int(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """Spellings of integers that other languages have."""
    bits = 32 if flag.kind is FlagKind.INT32 else 64
    why = f"only a decimal integer of {bits} bits is read"
    text = value.strip().strip("\"'")
    number = parse_int(text, 1 << 80) if len(text) < 30 else None
    if flag.minimum is not None and number is not None and number < flag.minimum:
        yield Repair("out-of-range", f"the least value is {flag.minimum}", str(flag.minimum))
    if _overflows(text, bits):
        limit = (1 << (bits - 1)) - 1
        yield Repair("out-of-range", f"{bits} bits hold {-limit - 1} to {limit}", None)
        return
    for guess in _integers(text):
        yield Repair("bad-number", why, str(guess))
    if flag.type.startswith("int") and ascii_lower(text) in _TRUE | _FALSE | {"true", "false"}:
        yield Repair("bad-number", f"{why}; this flag is no switch", None)
    yield Repair("bad-number", why, None)


def _overflows(text: str, bits: int) -> bool:
    return bool(re.fullmatch(r"[+-]?[0-9]+", text)) and len(text.lstrip("+-0")) >= (10 if bits == 32 else 19)


def _integers(text: str) -> Iterator[int]:
    if len(text) > 40:
        return
    bare = text.replace("_", "").replace(",", "").replace(" ", "").replace("'", "")
    for pattern, base in ((r"[+-]?0[xX][0-9a-fA-F]+", 16), (r"[+-]?0[bB][01]+", 2), (r"[+-]?0o[0-7]+", 8)):
        if re.fullmatch(pattern, bare):
            yield int(bare, base)
    if re.fullmatch(r"[+-]?[0-9]+", bare):
        yield int(bare)
    if match := _BINARY_SIZE.fullmatch(text):
        yield int(match[1]) << (10 * (1 + "KMGT".index(match[2].upper())))
    if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?([eE]\+?[0-9]{1,2})?", bare) and float(bare).is_integer():
        yield int(float(bare))


def of_float(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """A decimal comma, a percentage, separators."""
    text = value.strip().strip("\"'")
    if text.count(",") == 1:
        yield Repair("bad-number", "the decimal sign is a point", text.replace(",", "."))
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?%", text):
        yield Repair("bad-number", "percentages are not read", f"{float(text[:-1]) / 100:g}")
    yield Repair("bad-number", "not a number", text.replace("_", ""))
    yield Repair("bad-number", "not a number", None)


def of_duration(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """Missing, long or capital units, blanks."""
    text = ascii_lower(value.strip().strip("\"'"))
    why = "a duration is numbers with units ns, us, ms, s, m or h, such as 1m30s"
    if re.fullmatch(r"[+-]?[0-9]*\.?[0-9]*", text) and text.strip("+-."):
        yield Repair("bad-duration", f"the unit is missing; {why}", text + "s")
    short = re.sub(r"[a-zµ]+", lambda match: _UNITS.get(match[0].removesuffix("s"), match[0]), text)
    yield Repair("bad-duration", why, re.sub(r"\s", "", short))
    yield Repair("bad-duration", why, None)


def of_enum(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """Wrong case, a number, a part of a member's name, a member's former name, a misspelling."""
    assert flag.enum is not None
    members = flag.enum.numbers
    word, upper = value.strip().strip("\"'"), ascii_upper(value.strip().strip("\"'"))
    one_of = f"one of {', '.join(members)}"
    if upper in members:
        how = "in exactly that case" if word == value and word not in members else "without blanks or quotes"
        yield Repair("enum-case", f"members are written {how}", upper)
    number = parse_int(word)
    if number is not None:
        why = f"a flag takes the member's name, not its number: {one_of}"
        yield Repair("enum-number", why, flag.enum.names.get(number))
    for renamed in RENAMED_MEMBERS.get(upper, ()):
        why = f"{upper} is of another release; {renamed} has its number"
        yield Repair("renamed-value", why, renamed if renamed in members else None)
    tails = [name for name in members if name.endswith("_" + upper)] if upper else []
    yield Repair("bad-enum", f"the whole name is needed: {one_of}", tails[0] if len(tails) == 1 else None)
    yield from (Repair("bad-enum", one_of, name) for _, name in nearest(upper, members, 1))
    yield Repair("bad-enum", one_of, None)


def of_words(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """For flags that read words of their own: a member's name, a number, wrong case, a misspelling."""
    word, upper = value.strip().strip("\"'"), ascii_upper(value.strip().strip("\"'"))
    one_of = f"one of {', '.join(flag.words)}"
    if ascii_lower(word) in flag.words:
        yield Repair("enum-case", f"{one_of}, in lower case", ascii_lower(word))
    of_member = {member: each for each, member in flag.words.items()}
    if upper in of_member:
        yield Repair("bad-enum", f"a word is read, not the member's name: {one_of}", of_member[upper])
    number = parse_int(word)
    if number is not None and flag.enum is not None:
        name = of_member.get(flag.enum.names.get(number, ""))
        yield Repair("enum-number", f"a word is read, not a number: {one_of}", name)
    if {"on", "off"} <= flag.words.keys() and parse_bool(word) is not None:
        yield Repair("bad-enum", one_of, "on" if parse_bool(word) else "off")
    if "none" in flag.words and parse_bool(word) is False:
        yield Repair("bad-enum", one_of, "none")
    yield from (Repair("bad-enum", one_of, near) for _, near in nearest(ascii_lower(word), flag.words, 1))
    yield Repair("bad-enum", one_of, None)


REPAIRERS: Mapping[FlagKind, Repairer] = {
    FlagKind.INT32: of_int,
    FlagKind.INT64: of_int,
    FlagKind.FLOAT: of_float,
    FlagKind.DURATION: of_duration,
    FlagKind.ENUM: of_enum,
    FlagKind.ENUM_ANY_CASE: of_enum,
    FlagKind.WORD: of_words,
    FlagKind.WORD_ANY_CASE: of_words,
    FlagKind.FALSE_ONLY: of_false_only,
}
"""Kind -> its repairer. All other kinds that are bools have `of_bool`."""
