"""Setters of flags that hold many values: lists, enum lists with `+` and `-`, maps and filters.

Mirrors the setters of xla/debug_options_flags.cc and the parser of HLO pass filters. Invariant: that of
`setters`.
"""

from __future__ import annotations

from collections.abc import Mapping

from xla_flags.literals import BLANK, INT64_MAX, ascii_upper, parse_int
from xla_flags.schema import FlagSpec
from xla_flags.scratch import FatalValue, Scratch

_NO_SIGNS = str.maketrans("", "", "-_")


def members_of(flag: FlagSpec) -> Mapping[str, int]:
    """Member -> number of the enum that a flag writes."""
    assert flag.enum is not None, f"{flag.name} is of a kind that writes an enum"
    return flag.enum.numbers


def _field(flag: FlagSpec) -> str:
    assert flag.field is not None, f"{flag.name} is of a kind that writes a field"
    return flag.field.name


def enum_list(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Members between commas: without signs they replace the list, with `+` and `-` they edit it."""
    field = _field(flag)
    if not value:
        scratch.plain[field] = []
        return None
    pieces = value.split(",")
    changes = [_modifier(piece) for piece in map(_strip, pieces) if piece]
    signed = sum(sign != "" for sign, _ in changes)
    if signed and signed != len(pieces):
        scratch.log.append(
            f"E Illegal value for {flag.name} '{value}': All values must be incremental or none of them."
        )
        return "either all members or none carry a sign"
    members = members_of(flag)
    names = []
    for _, name in changes:
        known = name if name in members or name.startswith(flag.prefix) else flag.prefix + name
        if known not in members:
            scratch.log.append(f"E Illegal value for --{flag.name} '{known}'")
            return f"{known!r} is not a member of {_enum_name(flag)}"
        names.append(known)
    if changes:
        _apply(scratch, field, [sign for sign, _ in changes], names)
    return None


def _strip(piece: str) -> str:
    return piece.strip(BLANK)


def _modifier(piece: str) -> tuple[str, str]:
    sign = piece[0] if piece[0] in "+-" else ""
    return sign, ascii_upper(piece[len(sign) :])


def _apply(scratch: Scratch, field: str, signs: list[str], names: list[str]) -> None:
    current = dict.fromkeys(scratch.list_of(field) if signs[0] else ())
    for sign, name in zip(signs, names, strict=True):
        if sign == "-":
            current.pop(name, None)
        else:
            current.setdefault(name)
    scratch.plain[field] = [*current]


def _enum_name(flag: FlagSpec) -> str:
    return flag.enum.name.rpartition(".")[2] if flag.enum is not None else ""


def async_collectives(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Collectives between commas, replacing the list; the one that means all stands for each of them."""
    members = members_of(flag)
    names = [ascii_upper(piece) for piece in value.split(",")]
    for name in names:
        if name not in members:
            return f"{name!r} is not a member of {_enum_name(flag)}"
    first, end = members["ALLREDUCE"], members["ALLCOLLECTIVES"]
    result = []
    for name in names:
        if name == "ALLCOLLECTIVES":
            assert flag.enum is not None
            result += [flag.enum.names[number] for number in range(first, end)]
            break
        result.append(name)
    scratch.plain[_field(flag)] = result
    return None


def comma_list(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Appends what stands between commas, empty or not."""
    scratch.list_of(_field(flag)).extend(value.split(","))
    return None


def pass_list(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """The same for filters of HLO passes, each of which is checked."""
    for piece in value.split(","):
        if error := pass_filter_error(piece):
            scratch.log.append(f"E Invalid --{flag.name} entry: {error}")
            return error
    return comma_list(flag, value, scratch)


def pass_filter_error(entry: str) -> str | None:
    """What XLA says about an entry of an HLO pass list, if it is bad: `@id`, `pass:occurrence` or `pass`."""
    kind, sign, number = "pass_id", "@", entry[1:]
    if not entry.startswith("@"):
        kind, sign = "occurrence", ":"
        number = entry.partition(":")[2] if ":" in entry else "0"
    if parse_int(number) is not None:
        return None
    return f"invalid {kind} in HLO pass filter entry '{entry}': expected an integer after '{sign}'"


def trimmed_list(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Appends what stands between commas, trimmed, if anything is left."""
    scratch.list_of(_field(flag)).extend(filter(None, map(_strip, value.split(","))))
    return None


def blank_list(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Appends the words between white space."""
    words = value.translate(dict.fromkeys(map(ord, BLANK), " ")).split(" ")
    scratch.list_of(_field(flag)).extend(filter(None, words))
    return None


def whole_list(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Appends the value as it is."""
    scratch.list_of(_field(flag)).append(value)
    return None


def string_map(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Merges `key=value` pieces into the map; without `=` the value is empty."""
    entries = scratch.dict_of(_field(flag))
    for piece in value.split(","):
        key, _, text = piece.partition("=")
        entries[key] = text
    return None


def collective_filters(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Appends `op[:max_size[:type]]` filters; a bad size or type ends the process at once."""
    numbers = scratch.catalog.enums["xla.DebugOptions.CollectiveOpType"].numbers
    filters = scratch.list_of(_field(flag))
    for piece in filter(None, value.split(",")):
        name, *rest = piece.split(":")
        upper = ascii_upper(name).translate(_NO_SIGNS)
        upper = "ALLCOLLECTIVES" if upper == "ALL" else upper
        if upper not in numbers:
            scratch.log.append(f"E Invalid collective op name: {name}")
            return f"{name!r} is not a collective"
        entry: dict[str, object] = {"collective": upper}
        if rest:
            entry["max_size_bytes"] = size = parse_int(rest[0])
            if size is None:
                raise FatalValue(f"Invalid max_size_bytes: {rest[0]}")
        if len(rest) > 1:
            entry["op_type"] = _primitive_type(rest[1], scratch)
        filters.append(entry)
    return None


def _primitive_type(text: str, scratch: Scratch) -> str:
    """A primitive type by its name in any case, or by its number."""
    types = scratch.catalog.enums["xla.PrimitiveType"]
    upper = ascii_upper(text)
    if upper in types.numbers:
        return upper
    number = parse_int(text)
    known = None if number is None else types.names.get(number)
    if known is None:
        raise FatalValue(f"Invalid op_type (PrimitiveType): {text}")
    return known


def thunk_id_ranges(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Appends ranges of thunk ids: `n`, `a:b`, `a:` or `:b`."""
    ranges = []
    for piece in value.split(","):
        first, colon, last = piece.partition(":")
        if piece == ":":
            return "a range needs at least one end"
        low = parse_int(first) if first or not colon else -INT64_MAX - 1
        high = low if not colon else parse_int(last) if last else INT64_MAX
        if low is None or high is None or low > high:
            return f"{piece!r} is not a range of thunk ids"
        ranges.append({"first": low, "last": high})
    scratch.dict_of(_field(flag)).setdefault("thunk_id_ranges", []).extend(ranges)
    return None


def annotation_regexes(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    """Appends what stands between commas, unchecked."""
    filters = scratch.dict_of(_field(flag))
    filters.setdefault("profile_annotation_regexes", []).extend(value.split(","))
    return None
