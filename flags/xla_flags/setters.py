"""What each kind of flag does with its value.

Mirrors the setters of xla/debug_options_flags.cc. Invariant: a setter either writes its field and returns
None, or returns why the value is bad, having logged what XLA logs. Where XLA ends the process, it raises
`FatalValue`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from xla_flags import setters_lists
from xla_flags.literals import (
    INT32_MAX,
    INT64_MAX,
    ascii_lower,
    ascii_upper,
    is_duration,
    parse_bool,
    parse_float32,
    parse_int,
)
from xla_flags.schema import FlagKind, FlagSpec
from xla_flags.scratch import Scratch

Setter: TypeAlias = Callable[[FlagSpec, str, Scratch], str | None]

NOT_BOOL = "not a bool: true or false in any case, 1 or 0"


def _field(flag: FlagSpec) -> str:
    assert flag.field is not None, f"{flag.name} is of a kind that writes a field"
    return flag.field.name


def _uninterpretable(flag: FlagSpec, value: str, scratch: Scratch, why: str) -> str:
    scratch.log.append(f"E Couldn't interpret value {value} for flag {flag.name}.")
    return why


def _bool(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    parsed = parse_bool(value)
    if parsed is None:
        return _uninterpretable(flag, value, scratch, NOT_BOOL)
    scratch.plain[_field(flag)] = parsed
    return None


def _no_effect(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    if parse_bool(value) is None:
        return _uninterpretable(flag, value, scratch, NOT_BOOL)
    return None


def _deprecated(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    error = _no_effect(flag, value, scratch)
    if error is None:
        scratch.log.append(f'W "{flag.name}" is no longer supported and will be removed in a future release.')
    return error


def _false_only(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    parsed = parse_bool(value)
    if parsed is None:
        return _uninterpretable(flag, value, scratch, NOT_BOOL)
    if parsed:
        return "these builds refuse true"
    scratch.plain[_field(flag)] = False
    return None


def _bool_as_word(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    parsed = parse_bool(value)
    if parsed is None:
        return _uninterpretable(flag, value, scratch, NOT_BOOL)
    scratch.plain[_field(flag)] = flag.words["true" if parsed else "false"]
    return None


def _bool_as_member(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    parsed = parse_bool(value)
    if parsed is None:
        return _uninterpretable(flag, value, scratch, NOT_BOOL)
    member = flag.words["true"]
    members = scratch.list_of(_field(flag))
    if parsed and member not in members:
        members.append(member)
    elif not parsed:
        members[:] = [each for each in members if each != member]
    return None


def _int(flag: FlagSpec, value: str, scratch: Scratch, maximum: int, why: str) -> str | None:
    parsed = parse_int(value, maximum)
    if parsed is None:
        return _uninterpretable(flag, value, scratch, why)
    if flag.minimum is not None and parsed < flag.minimum:
        return f"less than {flag.minimum}"
    scratch.plain[_field(flag)] = parsed
    return None


def _int32(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    return _int(flag, value, scratch, INT32_MAX, "not a decimal integer of 32 bits")


def _int64(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    return _int(flag, value, scratch, INT64_MAX, "not a decimal integer of 64 bits")


def _float(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    parsed = parse_float32(value)
    if parsed is None:
        return _uninterpretable(flag, value, scratch, "not a number")
    scratch.plain[_field(flag)] = parsed
    return None


def _string(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    scratch.plain[_field(flag)] = value
    return None


def _upper_string(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    scratch.plain[_field(flag)] = ascii_upper(value)
    return None


def _enum(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    members = setters_lists.members_of(flag)
    if value not in members:
        return f"not a member of {_enum_name(flag)}, written exactly"
    scratch.plain[_field(flag)] = value
    return None


def _enum_any_case(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    members = setters_lists.members_of(flag)
    upper = ascii_upper(value)
    member = flag.words.get(ascii_lower(value), upper)
    if member not in members and flag.prefix + upper in members:
        member = flag.prefix + upper
    if member not in members:
        return f"not a member of {_enum_name(flag)}"
    scratch.plain[_field(flag)] = member
    return None


def _word(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    member = flag.words.get(value)
    if member is None:
        return f"not one of {', '.join(flag.words)}"
    scratch.plain[_field(flag)] = member
    return None


def _word_any_case(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    return _word(flag, ascii_lower(value), scratch)


def _enum_name(flag: FlagSpec) -> str:
    return flag.enum.name.rpartition(".")[2] if flag.enum is not None else ""


def _duration(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    if not is_duration(value):
        return "not a duration: numbers with units ns, us, ms, s, m or h, or 0, or inf"
    scratch.plain[_field(flag)] = value
    return None


def _fuel(flag: FlagSpec, value: str, scratch: Scratch) -> str | None:
    fuel: dict[str, int] = {}
    lead = f"E Illegal value for --{flag.name}. Saw {value}, but expected token "
    for piece in value.split(","):
        name, equals, number = piece.partition("=")
        if not equals or "=" in number:
            scratch.log.append(f"{lead}{piece} to have format X=INTEGER.")
            return f"{piece!r} is not PASS=INTEGER"
        amount = parse_int(number)
        if amount is None:
            scratch.log.append(f"{lead}{number} to be an integer.")
            return f"{number!r} is not an integer"
        fuel[name] = amount
    scratch.fuel = fuel
    return None


SETTERS: Mapping[FlagKind, Setter] = {
    FlagKind.BOOL: _bool,
    FlagKind.INT32: _int32,
    FlagKind.INT64: _int64,
    FlagKind.FLOAT: _float,
    FlagKind.STRING: _string,
    FlagKind.UPPER_STRING: _upper_string,
    FlagKind.ENUM: _enum,
    FlagKind.ENUM_ANY_CASE: _enum_any_case,
    FlagKind.WORD: _word,
    FlagKind.WORD_ANY_CASE: _word_any_case,
    FlagKind.ENUM_LIST: setters_lists.enum_list,
    FlagKind.ASYNC_COLLECTIVES: setters_lists.async_collectives,
    FlagKind.PASS_LIST: setters_lists.pass_list,
    FlagKind.COMMA_LIST: setters_lists.comma_list,
    FlagKind.TRIMMED_LIST: setters_lists.trimmed_list,
    FlagKind.BLANK_LIST: setters_lists.blank_list,
    FlagKind.WHOLE_LIST: setters_lists.whole_list,
    FlagKind.MAP: setters_lists.string_map,
    FlagKind.COLLECTIVE_FILTERS: setters_lists.collective_filters,
    FlagKind.THUNK_ID_RANGES: setters_lists.thunk_id_ranges,
    FlagKind.ANNOTATION_REGEXES: setters_lists.annotation_regexes,
    FlagKind.DURATION: _duration,
    FlagKind.FUEL: _fuel,
    FlagKind.NO_EFFECT: _no_effect,
    FlagKind.DEPRECATED: _deprecated,
    FlagKind.FALSE_ONLY: _false_only,
    FlagKind.BOOL_AS_WORD: _bool_as_word,
    FlagKind.BOOL_AS_MEMBER: _bool_as_member,
}
"""Kind -> its setter: (flag, value, state) -> None, or why the value is bad."""
