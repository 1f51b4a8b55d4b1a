"""Remarks on text as a whole: a file name that was meant as flags, and the rest that XLA never reads.

Invariant: there is a remark exactly where something is not read that a person wrote to be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from xla_flags.advise_names import value_after
from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.literals import parse_bool
from xla_flags.schema import BOOL_KINDS, FlagKind
from xla_flags.spelling import quoted
from xla_flags.subject import (
    SHELL_VARIABLE,
    TYPOGRAPHIC_QUOTES,
    Subject,
    line_end,
    plain_characters,
    shown,
    word_at,
)
from xla_flags.tokens import WHITESPACE, Span, Token

_BACKSLASH = re.compile(r"\\[ \t]*(?=[\r\n]|$)")
_FLAG_NAME = re.compile(r"(?:^|[ \t\r\n])--([A-Za-z0-9_]+)")
_OTHER_BLANKS = re.compile("[\v\f\x85\u00a0\u2002\u2003\u2007\u2009\u202f\u3000\u200b\ufeff]+")
_MAX_LISTED = 4
_MAX_PARTS = 200


def advise_file(subject: Subject) -> list[Diagnostic]:
    """Remarks on a value that XLA took for the name of a file."""
    source = subject.result.source
    if source.file is None:
        return []
    if source.openable:
        return [_empty_file(source.file)] if not source.text else []
    name = source.file
    for look in _FILE_LOOKS:
        found = look(name, subject)
        if found is not None:
            code, message, suggestion = found
            hint = "a value that does not begin with - is the name of a file with flags"
            return [Diagnostic(Severity.ERROR, code, None, message, suggestion, hint)]
    message = f"there is no file {shown(name)} to read flags from"
    hint = "the whole value is the name, blanks included; relative names count from the current directory"
    return [Diagnostic(Severity.ERROR, "no-such-file", None, message, None, hint)]


def _empty_file(name: str) -> Diagnostic:
    message = f"{shown(name)} is read as a file of flags, and it holds none"
    return Diagnostic(Severity.WARNING, "empty-file", None, message, None, "a directory reads as empty")


_Found = tuple[str, str, str | None]


def _blank(name: str, subject: Subject) -> _Found | None:
    if name.strip(WHITESPACE):
        return None
    return "blank-value", "the value is nothing but white space, which is the name of a file", ""


def _outer_quotes(name: str, subject: Subject) -> _Found | None:
    text = name.strip(WHITESPACE)
    if text[:1] not in "\"'`" or text[:1] == "":
        return None
    pieces = re.split(rf"{text[0]}[ \t\r\n,;]+{text[0]}(?=-)", text[1:].removesuffix(text[0]))
    inner = " ".join(pieces).strip(WHITESPACE)
    if not plain_characters(inner).startswith("-"):
        return None
    return "outer-quotes", f"the quote {text[0]} around the value is a part of it: a launcher kept it", inner


def _typographic(name: str, subject: Subject) -> _Found | None:
    plain = plain_characters(name)
    if plain == name or not plain.strip(WHITESPACE + "\"'").startswith("-"):
        return None
    return (
        "typographic",
        "the value begins with a typographic dash, quote or blank",
        plain.strip(WHITESPACE + "\"'"),
    )


def _shell_variable(name: str, subject: Subject) -> _Found | None:
    match = SHELL_VARIABLE.search(name)
    if match is None:
        return None
    rest = name[: match.start()] + name[match.end() :]
    fixed = rest.strip(WHITESPACE) if rest.strip(WHITESPACE).startswith("-") else None
    return "shell-variable", f"{match[0]} was not replaced by a shell", fixed


def _assignment(name: str, subject: Subject) -> _Found | None:
    match = re.match(r"(?:export\s+)?XLA_FLAGS\s*=\s*(.*)", name.strip(WHITESPACE), re.DOTALL)
    if match is None:
        return None
    return "assignment-kept", "XLA_FLAGS= is a part of the value", match[1].strip("\"'")


def _other_variable(name: str, subject: Subject) -> _Found | None:
    if not name.startswith("~"):
        return None
    return "no-such-file", "~ is not replaced by the home directory", None


def _comment(name: str, subject: Subject) -> _Found | None:
    if not name.lstrip(WHITESPACE).startswith("#"):
        return None
    return "comment", "there are no comments; # begins the name of a file", None


def _no_dashes(name: str, subject: Subject) -> _Found | None:
    text = name.strip(WHITESPACE)
    first = text.lstrip("+,;:\\ ")
    if first != text and first.startswith("-"):
        return "stray-text", f"{shown(text[: len(text) - len(first)])} stands before the flags", first
    if re.match(r"xla_\w+(?:=|\s|$)", text):
        fixed = " ".join(f"--{word}" if word.startswith("xla_") else word for word in text.split())
        return "dashes", "flags begin with two dashes", fixed
    inside = re.search(r"\s(--?xla_\w+)", text)
    if inside is not None:
        return (
            "stray-text",
            f"{shown(text.split()[0])} stands before the flags",
            text[inside.start() :].strip(),
        )
    return None


_FILE_LOOKS: tuple[Callable[[str, Subject], _Found | None], ...] = (
    _blank,
    _assignment,
    _outer_quotes,
    _typographic,
    _shell_variable,
    _other_variable,
    _comment,
    _no_dashes,
)


def advise_rest(subject: Subject) -> list[Diagnostic]:
    """A remark on where XLA stopped reading before the end, if it did."""
    result = subject.result
    if result.ignored is None:
        return []
    text, start = result.source.text, result.ignored.start
    last = result.tokens[-1] if result.tokens else None
    for look in _REST_LOOKS:
        found = look(text, start, last, subject)
        if found is not None:
            code, span, why, suggestion = found
            break
    lost = _FLAG_NAME.findall(text, start)
    if lost:
        names = ", ".join(lost[:_MAX_LISTED]) + (", …" if len(lost) > _MAX_LISTED else "")
        dropped = f"{len(lost)} flag{'s' if len(lost) > 1 else ''} after it never read: {names}"
    else:
        dropped = "it and all that follows are never read"
    message = f"XLA stops reading here without a word ({why}); {dropped}"
    return [Diagnostic(Severity.WARNING, code, span, message, suggestion)]


_Stop = tuple[str, Span, str, str | None]


def _byte_order_mark(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    marks = [
        mark for mark in ("\ufeff", "\ufffe", "\udcff\udcfe", "\udcfe\udcff") if text.startswith(mark, start)
    ]
    if not marks or last is not None:
        return None
    return "byte-order-mark", Span(start, start + len(marks[0])), "a byte order mark", ""


def _continuation(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    match = _BACKSLASH.match(text, start)
    if match is None:
        return None
    return "backslash", Span(start, match.end()), "a backslash does not continue a line", ""


def _comment_line(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    if not text.startswith(("#", "//"), start):
        return None
    return "comment", Span(start, line_end(text, start)), "there are no comments", ""


def _variable(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    match = SHELL_VARIABLE.match(text, start)
    if match is None:
        return None
    why = f"{match[0]} was not replaced by a shell"
    return "shell-variable", Span(start, match.end()), why, ""


def _odd_blank(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    match = _OTHER_BLANKS.match(text, start)
    if match is None:
        return None
    why = "only space, tab and line ends separate flags; this is another kind of blank"
    return "typographic", Span(*match.span()), why, " "


def _typographic_flag(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    span = word_at(text, start)
    word = text[span.start : span.end]
    plain = plain_characters(word)
    if plain == word or not plain.startswith("--"):
        return None
    return "typographic", span, "a typographic dash", plain


def _separate_value(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    """`--flag value`."""
    if last is None or last.value is not None or text[last.span.end : start].strip(WHITESPACE):
        return None
    flag = subject.catalog.flags.get(last.name)
    word = word_at(text, start)
    if flag is None:
        return None
    if flag.kind in BOOL_KINDS:
        value = text[word.start : word.end].removeprefix("=").strip()
        if parse_bool(value) is None:
            return None
        fixed = f"--{flag.name}={value}"
        return "missing-equals", Span(last.span.start, word.end), "a value follows `=`, not a blank", fixed
    _, joined = value_after(last, flag, subject)
    # The unknown token's own remark proposes how to join the two; a second one would collide with it.
    return ("missing-equals", word, "a value follows `=`, not a blank", None) if joined is not None else None


def _list_with_blanks(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    """`--flag=A, B`."""
    flag = subject.catalog.flags.get(last.name) if last is not None else None
    if last is None or last.value is None or last.quote or flag is None or flag.kind is FlagKind.STRING:
        return None
    parts, end = [last.value], start
    while (
        end < len(text)
        and len(parts) < _MAX_PARTS
        and text[end] != "-"
        and (parts[-1].endswith(",") or text[end] == ",")
    ):
        word = word_at(text, end)
        parts.append(text[word.start : word.end])
        end = word.end
        while end < len(text) and text[end] in WHITESPACE:
            end += 1
    fixed = f"--{last.name}={''.join(parts)}"
    if len(parts) < 2 or not subject.accepts(fixed):
        return None
    end = start + len(text[start:end].rstrip(WHITESPACE))
    why = "a blank ends the value"
    return "blank-in-list", Span(last.span.start, end), why, fixed


def _open_quote(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    """A quote that does not stand right after `=` does not hold blanks together."""
    if last is None or last.value is None or last.quote:
        return None
    value = text[last.value_start : last.span.end]
    quote = next((each for each in "\"'" if value.count(each) % 2), None)
    close = text.find(quote, start) if quote is not None else -1
    if quote is None or close < 0:
        return None
    whole = text[last.value_start : close + 1].replace(quote, "")
    fixed = f"--{last.name}={quoted(whole)}"
    why = f"{quote} holds blanks together only right after `=`"
    return "inner-quote", Span(last.span.start, close + 1), why, fixed if subject.accepts(fixed) else None


def _typographic_quote(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    """A typographic quote holds nothing together."""
    if last is None or not last.value or last.quote:
        return None
    opening = last.value[0]
    quote = TYPOGRAPHIC_QUOTES.get(opening)
    line = range(start, line_end(text, start))
    close = next((index for index in line if TYPOGRAPHIC_QUOTES.get(text[index]) == quote), None)
    if quote is None or close is None:
        return None
    fixed = f"--{last.name}={quoted(text[last.value_start + 1 : close])}"
    why = f"{opening} is no quote"
    span = Span(last.span.start, close + 1)
    return "typographic", span, why, fixed if subject.accepts(fixed) else None


def _after_quote(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    if last is None or last.span.end != start or not last.quote:
        return None
    return "after-quote", word_at(text, start), "the value ended at its closing quote", ""


def _without_dashes(text: str, start: int, last: Token | None, subject: Subject) -> _Stop | None:
    span = word_at(text, start)
    fixed = f"--{text[span.start : span.end]}"
    if not fixed.startswith("--xla_") or not subject.accepts(fixed):
        return None
    return "dashes", span, "a flag begins with two dashes", fixed


def _stray(text: str, start: int, last: Token | None, subject: Subject) -> _Stop:
    span = word_at(text, start)
    return "stray-text", span, f"{shown(text[span.start : span.end], 30)} does not begin with a dash", ""


_REST_LOOKS: tuple[Callable[[str, int, Token | None, Subject], _Stop | None], ...] = (
    _byte_order_mark,
    _continuation,
    _comment_line,
    _variable,
    _odd_blank,
    _typographic_flag,
    _separate_value,
    _list_with_blanks,
    _open_quote,
    _typographic_quote,
    _after_quote,
    _without_dashes,
    _stray,
)
