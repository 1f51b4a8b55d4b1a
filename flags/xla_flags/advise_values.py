"""Why a known flag refuses its value, and what to write instead.

Invariant: every bad assignment gets exactly one error; a value is proposed only if the jaxlib accepts it.
What may have been meant comes from `repairs`; here is what does not depend on the kind of flag.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.parser import Assignment, parse
from xla_flags.repairs import REPAIRERS, Repair, of_bool
from xla_flags.repairs_lists import LIST_REPAIRERS
from xla_flags.schema import BOOL_KINDS, Catalog, FlagKind, FlagSpec, shipped_versions
from xla_flags.spelling import flag_text
from xla_flags.subject import (
    SHELL_HINT,
    SHELL_VARIABLE,
    Subject,
    plain_characters,
    replacing_value,
    shown,
    value_span,
)

MAX_LENGTH = 2000
"""Longer values are reported without a guess at what they should be."""

_GLUED = re.compile(r"[,;|]?(?<!-)(?=--xla_)")
_ENUM_KINDS = (
    FlagKind.ENUM,
    FlagKind.ENUM_ANY_CASE,
    FlagKind.WORD,
    FlagKind.WORD_ANY_CASE,
    FlagKind.ENUM_LIST,
)


def advise_value(bad: Assignment, subject: Subject) -> Diagnostic:
    """The error for an assignment whose value is bad."""
    token, flag, value = bad.token, bad.flag, bad.value
    if len(value) > MAX_LENGTH:
        return subject.value_error("bad-value", token, f"{flag.name}: {shown(str(bad.error))}")
    return (
        _glued(bad, subject)
        or _shell_variable(bad, subject)
        or _repaired(bad, subject)
        or subject.value_error("bad-value", token, f"{flag.name}: {shown(str(bad.error))}")
    )


def _glued(bad: Assignment, subject: Subject) -> Diagnostic | None:
    parts = [part for part in _GLUED.split(bad.value) if part]
    if len(parts) < 2 or bad.value.startswith("--xla_"):
        return None
    fixed = " ".join([flag_text(bad.flag.name, parts[0]), *parts[1:]])
    message = f"{len(parts)} flags stand together; blanks separate flags, nothing else does"
    return subject.token_error("glued-flags", bad.token, message, fixed)


def _shell_variable(bad: Assignment, subject: Subject) -> Diagnostic | None:
    match = SHELL_VARIABLE.search(bad.value)
    if match is None:
        return None
    message = f"{match[0]} was not replaced by a shell, and {bad.flag.name} does not take it as it is"
    return Diagnostic(Severity.ERROR, "shell-variable", value_span(bad.token), message, None, SHELL_HINT)


def _repaired(bad: Assignment, subject: Subject) -> Diagnostic | None:
    """The first proposal that is accepted; else the last one's reason."""
    flag, value, token = bad.flag, bad.value, bad.token
    known_in = _releases_with(flag, value, subject)
    hint = f"{shown(value)} is accepted by jaxlib {known_in}" if known_in else None
    last: Repair | None = None
    for repair in _proposals(flag, value):
        last = repair
        if repair.value is None or repair.value == value:
            continue
        if subject.accepts(flag_text(flag.name, repair.value)):
            message = f"{flag.name} refuses {_quoted(value)}: {repair.why}"
            span, text = replacing_value(token, repair.value)
            return Diagnostic(Severity.ERROR, repair.code, span, message, text, hint)
    if last is None:
        return None
    message = f"{flag.name} refuses {_quoted(value)}: {last.why}"
    return Diagnostic(Severity.ERROR, last.code, value_span(token), message, None, hint)


def _quoted(value: str) -> str:
    return shown(value) if value else "an empty value"


def _proposals(flag: FlagSpec, value: str) -> Iterator[Repair]:
    plain = plain_characters(value)
    if plain != value:
        yield Repair("typographic", "typographic dashes, quotes or blanks", plain.strip("\"' "))
    bare = value.strip(" \t\v\f\r\n,;")
    if bare != value and bare and flag.kind is not FlagKind.ENUM_LIST:
        yield Repair("bad-value", "something besides the value follows `=`", bare)
    unquoted = value.strip("\"'")
    if unquoted != value and unquoted:
        why = "a quote inside a value is a part of it"
        yield Repair("kept-quotes", why, unquoted)
    if value.startswith("="):
        yield Repair("bad-value", "one `=` is enough", value.lstrip("="))
    repairer = REPAIRERS.get(flag.kind) or LIST_REPAIRERS.get(flag.kind)
    if repairer is None and flag.kind in BOOL_KINDS:
        repairer = of_bool
    if repairer is not None:
        yield from repairer(flag, value)


def _releases_with(flag: FlagSpec, value: str, subject: Subject) -> str | None:
    """Other shipped releases that accept a member's name which this one refuses."""
    if flag.kind not in _ENUM_KINDS or not value:
        return None
    others = [
        version
        for version in shipped_versions()
        if version != subject.catalog.version and _accepted_in(version, flag.name, value)
    ]
    return ", ".join(others) or None


@functools.lru_cache(maxsize=512)
def _accepted_in(version: str, name: str, value: str) -> bool:
    return parse(flag_text(name, value), Catalog.for_jaxlib(version), files={}).ok
