"""Remarks on flags that are accepted but do less, or more, than their text suggests.

Invariant: never an error, and nothing at all about a flag whose value is new, taken, and kept to the end.
"""

from __future__ import annotations

import re
from collections import defaultdict

from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.merge import field_of, replaces
from xla_flags.parser import Assignment
from xla_flags.schema import FlagKind
from xla_flags.spelling import canonical_value
from xla_flags.subject import (
    SHELL_HINT,
    SHELL_VARIABLE,
    Subject,
    plain_characters,
    replacing_value,
    shown,
    value_span,
)
from xla_flags.tokens import Token

_SWALLOWED = re.compile(r"(?:^|[^\w-])?--(xla_\w+)")
_PATHS = re.compile(r"_(to|dir|file|path|from|filename|file_path)$|^xla_dump_to$")
# (flag, canonical value) -> why it is known to end badly although it is accepted.
_KNOWN_BAD = {
    ("xla_gpu_enable_while_loop_unrolling", "WHILE_LOOP_UNROLLING_FULL_UNROLL"): (
        "full unrolling of while loops was reported to crash programs (jax-ml/jax#31149)"
    ),
}


def advise_effects(subject: Subject) -> list[Diagnostic]:
    """Remarks on the good assignments."""
    good = [each for each in subject.result.assignments if each.error is None]
    by_field: dict[str, list[Assignment]] = defaultdict(list)
    for each in good:
        by_field[field_of(each.flag)].append(each)
    found = []
    for group in by_field.values():
        found += _overridden(group)
        found += _no_change(group, subject)
    for each in good:
        found += _suspicious(each)
    found += _unclosed(subject)
    return found


def _warning(code: str, token: Token, message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic(Severity.WARNING, code, value_span(token), message, None, hint)


def _useless(token: Token, message: str) -> Diagnostic:
    return Diagnostic(Severity.WARNING, "no-effect", token.span, message, "")


def _note(code: str, token: Token, message: str, suggestion: str | None = None) -> Diagnostic:
    return Diagnostic(Severity.NOTE, code, token.span, message, suggestion)


def _overridden(group: list[Assignment]) -> list[Diagnostic]:
    """Earlier assignments to a field that a later one makes meaningless."""
    last = next(
        (index for index in range(len(group) - 1, 0, -1) if replaces(group[index].flag, group[index].value)),
        0,
    )
    final = group[last]
    found = []
    for each in group[:last]:
        same = canonical_value(each.flag, each.value) == canonical_value(final.flag, final.value)
        if each.flag is final.flag and same:
            message = f"{each.flag.name} is given the same value again later"
        elif each.flag is final.flag:
            message = f"a later --{final.flag.name}={shown(final.value, 30)} replaces this; the last one wins"
        else:
            message = f"a later --{final.flag.name} writes the same option and replaces this"
        found.append(_note("overridden", each.token, message, ""))
    return found


def _no_change(group: list[Assignment], subject: Subject) -> list[Diagnostic]:
    last, flag = group[-1], group[-1].flag
    if flag.kind is FlagKind.DEPRECATED:
        return [_useless(last.token, f"{flag.name} has no effect any more, and XLA logs that")]
    if flag.kind is FlagKind.NO_EFFECT:
        return [_useless(last.token, f"{flag.name} is read and has no effect")]
    field = flag.field
    if field is None:
        return []
    if field.forced:
        message = f"jaxlib sets {flag.name} to {str(field.default).lower()} whatever the flags say"
        return [_warning("forced", last.token, message + "; compiler_options can set it")]
    if not subject.result.ok or subject.result.plain.get(field.name) != field.default:
        return []
    return [
        _note(
            "already-default",
            last.token,
            f"{_default_of(last)} is the default already",
            "",
        )
    ]


def _default_of(assignment: Assignment) -> str:
    name = assignment.flag.name
    return f"{name}={shown(canonical_value(assignment.flag, assignment.value), 40)}"


def _suspicious(assignment: Assignment) -> list[Diagnostic]:
    """Values that are good, but probably not what was meant."""
    flag, value, token = assignment.flag, assignment.value, assignment.token
    found = []
    why = _KNOWN_BAD.get((flag.name, canonical_value(flag, value)))
    if why is not None:
        found.append(_warning("known-bad", token, why))
    if flag.type != "string" or flag.enum is not None:
        return found
    swallowed = _SWALLOWED.search(value)
    if swallowed is not None:
        message = f"--{swallowed[1]} is a part of the value of {flag.name}, not a flag"
        found.append(_warning("glued-flags", token, message))
    variable = SHELL_VARIABLE.search(value)
    if variable is not None and _PATHS.search(flag.name):
        message = f"{variable[0]} was not replaced by a shell; it is taken as it is"
        found.append(_warning("shell-variable", token, message, SHELL_HINT))
    elif value.startswith("~/") and _PATHS.search(flag.name):
        hint = "write the whole path, or $HOME where a shell reads it"
        found.append(_warning("tilde", token, "~ is not replaced by the home directory", hint))
    plain = plain_characters(value)
    if value != plain and plain.strip("\"'") != value:
        message = "typographic dashes, quotes or blanks are kept as they are"
        span, text = replacing_value(token, plain.strip("\"'"))
        # A quote that never closes may have been meant to hold what comes after.
        open_ended = plain.count('"') % 2 or plain.count("'") % 2
        found.append(Diagnostic(Severity.WARNING, "typographic", span, message, None if open_ended else text))
    if not value and flag.kind in (FlagKind.PASS_LIST, FlagKind.COMMA_LIST, FlagKind.WHOLE_LIST):
        message = (
            f"{flag.name} appends, and an empty value appends an empty entry; it does not clear the list"
        )
        found.append(_warning("empty-entry", token, message))
    return found


def _unclosed(subject: Subject) -> list[Diagnostic]:
    tokens = subject.result.tokens
    if not tokens or tokens[-1].closed:
        return []
    last = tokens[-1]
    message = f"the quote {last.quote} is never closed, so all that follows is a part of the value"
    return [Diagnostic(Severity.WARNING, "unclosed-quote", last.span, message)]
