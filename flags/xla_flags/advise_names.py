"""Why a token names no flag, and which one may have been meant.

Invariant: every unknown token gets exactly one error; a replacement of one flag by another is offered only if
the jaxlib accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.history import FlagHistory, history_of, recorded_names
from xla_flags.literals import parse_bool
from xla_flags.migrations import migrate
from xla_flags.nearest import CLEAR, nearest
from xla_flags.schema import BOOL_KINDS, FlagKind, FlagSpec, version_key
from xla_flags.spelling import flag_text, quoted
from xla_flags.subject import SHELL_HINT, SHELL_VARIABLE, Subject, plain_characters, shown
from xla_flags.tokens import WHITESPACE, Span, Token

# Beginning of a name -> the variable that such flags belong into.
_ELSEWHERE: Mapping[str, str] = {
    "xla_tpu_": "LIBTPU_INIT_ARGS",
    "xla_jf_": "LIBTPU_INIT_ARGS",
    "xla_sc_": "LIBTPU_INIT_ARGS",
    "xla_vf_": "LIBTPU_INIT_ARGS",
    "xla_mosaic_": "LIBTPU_INIT_ARGS",
    "xla_lhs_": "LIBTPU_INIT_ARGS",
    "xla_enable_async_": "LIBTPU_INIT_ARGS",
    "megascale_": "LIBTPU_INIT_ARGS",
    "2a886c8_": "LIBTPU_INIT_ARGS",
    "tf_xla_": "TF_XLA_FLAGS",
    "tf_mlir_": "TF_XLA_FLAGS",
}
_ENVIRONMENT = ("jax_", "xla_python_client_", "tf_cpp_", "nccl_", "cuda_visible_")

_GLUED = re.compile(r"[,;|]?(?<!-)(?=--xla_)")
_NEGATION = re.compile(r"no[-_]?(?=xla_)|(?<=xla_)no_|(?<=xla_gpu_)no_|(?<=xla_cpu_)no_")
_SEPARATOR = re.compile(r"([-:~+])(.*)", re.DOTALL)


def advise_name(token: Token, subject: Subject) -> Diagnostic:
    """The error for a token that names no flag."""
    for look in _LOOKS:
        found = look(token, subject)
        if found is not None:
            return found
    return _resembling(token, subject)


def _help(token: Token, subject: Subject) -> Diagnostic | None:
    if token.text != "--help":
        return None
    message = "--help makes XLA print a part of its flags and end the process"
    return subject.token_error("help", token, message, "", "`xla-flags list` shows all flags")


def _double_dash(token: Token, subject: Subject) -> Diagnostic | None:
    if token.text != "--":
        return None
    message = "-- ends the flags; it and everything after it are unknown flags"
    return subject.token_error("double-dash", token, message, "")


def _after_double_dash(token: Token, subject: Subject) -> Diagnostic | None:
    # A token that is fine by itself is unknown only because of an earlier `--`.
    if not subject.accepts(_as_written(token, subject)):
        return None
    return subject.token_error("after-double-dash", token, f"{shown(token.text)} comes after --")


def _as_written(token: Token, subject: Subject) -> str:
    return subject.result.source.text[token.span.start : token.span.end]


def _typographic(token: Token, subject: Subject) -> Diagnostic | None:
    written = _as_written(token, subject)
    plain = plain_characters(written)
    if plain == written:
        return None
    message = f"{shown(written)} has typographic dashes, quotes or blanks"
    fixed = subject.first_accepted([plain])
    return subject.token_error("typographic", token, message, fixed or plain)


def _shell_variable(token: Token, subject: Subject) -> Diagnostic | None:
    name = token.text.partition("=")[0]
    match = SHELL_VARIABLE.search(name)
    if match is None:
        return None
    message = f"{match[0]} was not replaced by a shell"
    return subject.token_error("shell-variable", token, message, None, SHELL_HINT)


def _glued(token: Token, subject: Subject) -> Diagnostic | None:
    parts = [part for part in _GLUED.split(token.text) if part]
    if len(parts) < 2:
        return None
    fixed = " ".join(parts)
    message = f"{len(parts)} flags stand together without a blank"
    return subject.token_error("glued-flags", token, message, fixed)


def _spelling(token: Token, subject: Subject) -> Diagnostic | None:
    """Dashes, letter case, `_` for `-`, blanks around the name."""
    head, equals, value = token.text.partition("=")
    name = head.strip("-").replace("-", "_").lower()
    flag = subject.catalog.flags.get(name)
    if flag is None:
        return None
    written = head.lstrip("-")
    dashes = len(head) - len(written)
    if written != name:
        what = "names of flags are in lower case with underscores"
        code = "flag-spelling"
    elif dashes == 2:
        return _missing_equals(token, flag, subject)
    else:
        what = f"a flag begins with two dashes, not {'one' if dashes == 1 else dashes}"
        code = "dashes"
    text = flag_text(name, value) if equals else f"--{name}"
    fixed = subject.first_accepted([text])
    return subject.token_error(code, token, f"{shown(head)} names no flag: {what}", fixed or text)


def _missing_equals(token: Token, flag: FlagSpec, subject: Subject) -> Diagnostic | None:
    if token.value is not None or flag.kind in BOOL_KINDS:
        return None
    span, fixed = value_after(token, flag, subject)
    takes = f"{flag.name} takes a value ({_expected(flag)}), and the value follows `=`"
    return Diagnostic(
        severity=Severity.ERROR,
        code="missing-equals",
        span=span,
        message=takes,
        suggestion=fixed,
        hint=f"only a bool may stand alone, meaning true; the default is {shown(flag.default) or 'empty'}",
    )


def value_after(token: Token, flag: FlagSpec, subject: Subject) -> tuple[Span, str | None]:
    """(span, text) that join a flag with the word after it, if that word is where XLA stops reading."""
    text, stop = subject.result.source.text, subject.result.stopped_at
    if stop is None or text[token.span.end : stop].strip(WHITESPACE):
        return token.span, None
    end = stop
    while end < len(text) and text[end] not in WHITESPACE:
        end += 1
    word = text[stop:end].removeprefix("=").strip("\"'")
    if not word:
        return token.span, None
    fixed = subject.first_accepted([flag_text(flag.name, word)])
    return (Span(token.span.start, end), fixed) if fixed is not None else (token.span, None)


def _expected(flag: FlagSpec) -> str:
    if flag.kind in (FlagKind.WORD, FlagKind.WORD_ANY_CASE):
        return ", ".join(flag.words)
    if flag.kind in (FlagKind.ENUM, FlagKind.ENUM_ANY_CASE) and flag.enum is not None:
        return f"such as {next(iter(flag.enum.numbers), '')}"
    return str(flag.type)


def _dash_for_equals(token: Token, subject: Subject) -> Diagnostic | None:
    body = token.text[2:] if token.text.startswith("--") else ""
    run = re.match(r"\w+", body)
    if run is None:
        return None
    flag = subject.catalog.flags.get(run[0])
    match = _SEPARATOR.fullmatch(body, run.end())
    if flag is None or match is None:
        return None
    value = match[2].removeprefix("=")
    fixed = subject.first_accepted([flag_text(flag.name, value)])
    if fixed is None:
        return None
    message = f"{match[1]} stands between {flag.name} and its value; there must be ="
    return subject.token_error("dash-for-equals", token, message, fixed)


def _negated(token: Token, subject: Subject) -> Diagnostic | None:
    head, _, value = token.text.partition("=")
    name = _NEGATION.sub("", head.lstrip("-").lower(), count=1).replace("-", "_")
    flag = subject.catalog.flags.get(name)
    if flag is None or flag.kind not in BOOL_KINDS or name == token.name:
        return None
    on = parse_bool(value) if value else True
    fixed = f"--{name}={'false' if on is not False else 'true'}"
    message = f"there is no {shown(head)}: flags have no negated form"
    return subject.token_error("negated-flag", token, message, subject.first_accepted([fixed]))


def _elsewhere(token: Token, subject: Subject) -> Diagnostic | None:
    name = token.name.lstrip("-").lower()
    variable = next((each for lead, each in _ELSEWHERE.items() if name.startswith(lead)), None)
    if variable is not None:
        message = f"{shown(token.name)} is no flag of this XLA; such flags go into {variable}"
        return subject.token_error("wrong-variable", token, message, "")
    if name.startswith(_ENVIRONMENT):
        setting = shown(name.upper())
        message = f"{shown(token.name)} is no XLA flag but a setting: the variable {setting}"
        hint = f"or jax.config.update({name!r}, ...)" if name.startswith("jax_") else None
        return subject.token_error("wrong-variable", token, message, "", hint)
    return None


def _field_only(token: Token, subject: Subject) -> Diagnostic | None:
    if token.name not in subject.catalog.fields:
        return None
    writers = [
        flag
        for flag in subject.catalog.flags.values()
        if flag.field is not None and flag.field.name == token.name
    ]
    message = f"{token.name} is a field of DebugOptions but no flag"
    hint = "compiler_options of jax.jit can set it"
    if not writers:
        gone = history_of(token.name)
        hint += f"; it was a flag in {gone.span}" if gone is not None else ""
        return subject.token_error("field-not-flag", token, message, None, hint)
    candidates = [flag_text(flag.name, token.value or "true") for flag in writers]
    names = ", ".join(flag.name for flag in writers)
    return subject.token_error(
        "field-not-flag", token, f"{message}; {names} writes it", subject.first_accepted(candidates), hint
    )


def _migrated(token: Token, subject: Subject) -> Diagnostic | None:
    value = "true" if token.value is None else token.value
    migration = migrate(token.name, value)
    if migration is None:
        return None
    fixed = migration.text
    if fixed and not subject.accepts(fixed):
        fixed = None
    history = history_of(token.name)
    lead = (
        f"{token.name} is gone ({_was(history)})" if history is not None else f"there is no flag {token.name}"
    )
    return subject.token_error("removed-flag", token, f"{lead}: {migration.why}", fixed)


def _was(history: FlagHistory) -> str:
    return f"a flag of {history.span}"


def _from_another_release(token: Token, subject: Subject) -> Diagnostic | None:
    history = history_of(token.name)
    if history is None:
        return None
    if version_key(subject.catalog.version) < version_key(history.since):
        message = f"{token.name} is a flag of later releases only: {history.span}"
        return subject.token_error("other-release", token, message, "")
    message = f"{token.name} is gone ({_was(history)})"
    similar = nearest(token.name, subject.catalog.flags)
    hint = f"similar flags now: {', '.join(name for _, name in similar)}" if similar else None
    return subject.token_error("other-release", token, message, "", hint)


def _resembling(token: Token, subject: Subject) -> Diagnostic:
    name = token.name.strip("-").replace("-", "_").lower()
    similar = nearest(name, subject.catalog.flags)
    message = f"there is no flag {shown(token.name or token.text)}"
    value = token.value
    if similar and similar[0][0] >= CLEAR:
        best = similar[0][1]
        tail = "" if value is None else f"={quoted(value)}"
        fixed = subject.first_accepted([f"--{best}{tail}"])
        others = [each for score, each in similar[1:] if score > similar[0][0] - 0.05]
        hint = f"or {', '.join(others)}" if others else None
        text = f"{message}; did you mean {best}?" if fixed is None else message
        return subject.token_error("unknown-flag", token, text, fixed, hint)
    hint = f"similar: {', '.join(each for _, each in similar)}" if similar else _resembling_one_gone(name)
    return subject.token_error("unknown-flag", token, message, None, hint)


def _resembling_one_gone(name: str) -> str | None:
    """A flag of another release that may have been meant."""
    similar = nearest(name, recorded_names(), 1)
    if not similar or similar[0][0] < CLEAR:
        return None
    best = similar[0][1]
    history = history_of(best)
    return f"similar: {best}" + (f", {_was(history)}" if history is not None else "")


_LOOKS: tuple[Callable[[Token, Subject], Diagnostic | None], ...] = (
    _help,
    _double_dash,
    _after_double_dash,
    _typographic,
    _glued,
    _shell_variable,
    _spelling,
    _dash_for_equals,
    _migrated,
    _negated,
    _field_only,
    _from_another_release,
    _elsewhere,
)
"""In the order in which they are asked; the first that has an answer gives it."""
