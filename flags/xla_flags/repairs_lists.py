"""Proposals for a value that a flag with many values refuses.

Invariant: that of `repairs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from xla_flags.literals import BLANK, ascii_upper, parse_int
from xla_flags.migrations import RENAMED_MEMBERS
from xla_flags.nearest import nearest
from xla_flags.repairs import Repair, Repairer
from xla_flags.schema import FlagKind, FlagSpec

_NOTHING = frozenset({"NONE", "NO", "OFF", "FALSE", "DISABLED", "EMPTY", "[]", "NULL"})
_ALL = frozenset({"ALL", "*", "EVERYTHING", "TRUE", "ON"})
_SENTINELS = frozenset(
    {"INVALID", "NOOP", "UNKNOWN", "ALLCOLLECTIVES", "ALL_COLLECTIVES", "UNSPECIFIED_BACKEND"}
)


def of_enum_list(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """Mixed signs, words for nothing and for all, numbers, misspelt members."""
    assert flag.enum is not None
    text = value.strip(BLANK).strip("\"'[](){}")
    upper = ascii_upper(text)
    if upper in _NOTHING or text == "0":
        yield Repair("bad-list", "an empty list is written with nothing after `=`", "")
    ordinary = [name for name in flag.enum.numbers if name.removeprefix(flag.prefix) not in _SENTINELS]
    if upper in _ALL:
        yield Repair("bad-list", "all members must be named", ",".join(ordinary))
    pieces = [piece.strip(BLANK) for piece in re.split(r"[,;|\s]+", text) if piece.strip(BLANK)]
    signed = [piece for piece in pieces if piece[0] in "+-"]
    if signed:
        yield from _signs(value, pieces, signed)
    repaired = [_member(flag, piece) for piece in pieces]
    one_of = f"the members are {', '.join(name.removeprefix(flag.prefix) for name in flag.enum.numbers)}"
    if all(repaired):
        yield Repair(_list_code(pieces), one_of, ",".join(each for each in repaired if each))
    yield Repair("bad-list", one_of, None)


def _signs(value: str, pieces: list[str], signed: list[str]) -> Iterator[Repair]:
    why = "either every member carries + or - (editing the default), or none does (replacing it)"
    if len(signed) < len(pieces):
        with_signs = [piece if piece[0] in "+-" else f"+{piece}" for piece in pieces]
        yield Repair("list-signs", why, ",".join(with_signs))
    elif len(pieces) < value.count(",") + 1:
        yield Repair("list-signs", "with signs there must be no empty piece between commas", ",".join(pieces))


def _list_code(pieces: list[str]) -> str:
    if any(parse_int(piece.lstrip("+-")) is not None for piece in pieces):
        return "enum-number"
    renamed = any(ascii_upper(piece.lstrip("+-")) in RENAMED_MEMBERS for piece in pieces)
    return "renamed-value" if renamed else "bad-list"


def _member(flag: FlagSpec, piece: str) -> str | None:
    """A piece with its member named right; None: no guess."""
    assert flag.enum is not None
    members = flag.enum.numbers
    sign, name = (piece[0], piece[1:]) if piece[0] in "+-" else ("", piece)
    name = ascii_upper(name.strip("+-\"' "))
    number = parse_int(name)
    if number is not None:
        found = flag.enum.names.get(number)
        return sign + found if found is not None else None
    near = [known for _, known in nearest(name, members, 1)]
    bare = [
        flag.prefix + known
        for _, known in nearest(name, [each.removeprefix(flag.prefix) for each in members], 1)
    ]
    for guess in (
        name,
        flag.prefix + name,
        *RENAMED_MEMBERS.get(name, ()),
        name.replace("_", ""),
        *near,
        *bare,
    ):
        if guess in members:
            return sign + guess
    return None


def of_async_collectives(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """Blanks, underscores, signs and empty pieces, none of which this list takes."""
    assert flag.enum is not None
    why = "collectives between commas, without blanks, signs or empty pieces"
    one_of = f"{why}: {', '.join(flag.enum.numbers)}"
    upper = ascii_upper(value.strip(BLANK).strip("\"'"))
    if upper in _ALL:
        yield Repair("bad-list", one_of, "ALLCOLLECTIVES")
    pieces = [piece.lstrip("+") for piece in re.split(r"[,;\s]+", value) if piece.strip("+")]
    if any(piece.startswith("-") for piece in pieces):
        yield Repair("bad-list", f"{why}; the list names what is disabled and has no default", None)
    names = [_member(flag, piece.replace("-", "_")) for piece in pieces]
    names = [
        name if name is not None else _member(flag, piece.replace("_", ""))
        for name, piece in zip(names, pieces, strict=True)
    ]
    if names and all(names):
        yield Repair("bad-list", one_of, ",".join(name for name in names if name))
    if not value.strip(","):
        yield Repair("bad-list", f"{why}; leave the flag out to disable none", None)
    yield Repair("bad-list", one_of, None)


def of_passes(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """`pass:occurrence` and `@id` with something else than a number."""
    why = "an entry is a pass, pass:occurrence or @id, both with an integer"
    pieces = [piece.strip() for piece in value.split(",")]
    fixed = []
    for piece in pieces:
        head, colon, number = piece.partition(":")
        keep = not colon or parse_int(number) is not None
        fixed.append(piece if keep else f"{head}:{number.strip(':')}")
    yield Repair("bad-list", why, ",".join(fixed))
    yield Repair("bad-list", why, None)


def of_fuel(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """Another sign than `=`, blanks."""
    yield Repair("bad-value", "fuel is PASS=INTEGER between commas", value.replace(":", "=").replace(" ", ""))
    yield Repair("bad-value", "fuel is PASS=INTEGER between commas", None)


def of_thunk_ids(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """A dash or dots for the colon, reversed ends, blanks and empty pieces."""
    why = "ranges are n, first:last, first: or :last, between commas"
    pieces = []
    for piece in filter(None, re.split(r"[,;\s]+", value.strip("[]()"))):
        match = re.fullmatch(r"([0-9]*)(?:-|\.\.|:|\.\.\.)([0-9]*)", piece)
        ends = [match[1], match[2]] if match else [piece]
        if len(ends) == 2 and all(ends) and int(ends[0][:20]) > int(ends[1][:20]):
            ends.reverse()
        pieces.append(":".join(ends))
    yield Repair("bad-list", why, ",".join(pieces))
    yield Repair("bad-list", why, None)


def of_collective_filters(flag: FlagSpec, value: str) -> Iterator[Repair]:
    """A filter whose size or type is missing or no number."""
    why = "filters are op, op:max_bytes or op:max_bytes:type, between commas"
    pieces = [piece.strip().rstrip(":") for piece in value.split(",")]
    yield Repair("bad-list", why, ",".join(pieces))
    yield Repair("bad-list", why, None)


LIST_REPAIRERS: Mapping[FlagKind, Repairer] = {
    FlagKind.ENUM_LIST: of_enum_list,
    FlagKind.ASYNC_COLLECTIVES: of_async_collectives,
    FlagKind.PASS_LIST: of_passes,
    FlagKind.FUEL: of_fuel,
    FlagKind.THUNK_ID_RANGES: of_thunk_ids,
    FlagKind.COLLECTIVE_FILTERS: of_collective_filters,
}
"""Kind -> its repairer."""
