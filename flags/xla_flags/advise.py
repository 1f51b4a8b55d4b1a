"""Remarks on a parse result that a person can act on, and the text with these remarks heeded.

Invariant: advice explains a verdict and never changes one. If the process would end there is an error, and if
it goes on there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from xla_flags.advise_effects import advise_effects
from xla_flags.advise_names import advise_name
from xla_flags.advise_text import advise_file, advise_rest
from xla_flags.advise_values import advise_value
from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.parser import Assignment, ParseResult, parse
from xla_flags.subject import Subject
from xla_flags.tokens import WHITESPACE, Span, Token

MAX_REMARKS = 100
"""More errors than this are counted, not explained."""
_ROUNDS = 8
_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def advise(result: ParseResult) -> tuple[Diagnostic, ...]:
    """All remarks on a parse result, in the order of the text."""
    subject = Subject(result)
    found = [*advise_file(subject)]
    wrong: list[Token | Assignment] = [*result.unknown, *result.bad]
    wrong.sort(key=_start)
    found += [_explained(each, subject) for each in wrong[:MAX_REMARKS]]
    if len(wrong) > MAX_REMARKS:
        message = f"{len(wrong) - MAX_REMARKS} more errors are not explained"
        found.append(Diagnostic(Severity.ERROR, "more", None, message))
    found += advise_rest(subject)
    found += advise_effects(subject)[:MAX_REMARKS]
    return tuple(sorted(found, key=_place))


def _start(wrong: Token | Assignment) -> int:
    return (wrong.token if isinstance(wrong, Assignment) else wrong).span.start


def _explained(wrong: Token | Assignment, subject: Subject) -> Diagnostic:
    return advise_value(wrong, subject) if isinstance(wrong, Assignment) else advise_name(wrong, subject)


def _place(diagnostic: Diagnostic) -> tuple[int, int, int]:
    span = diagnostic.span
    if span is None:
        return (-1 if diagnostic.code != "more" else 1 << 60, 0, 0)
    return (span.start, _ORDER[diagnostic.severity], span.end)


def fixed_text(result: ParseResult) -> str | None:
    """The text of flags with all suggestions of errors and warnings followed; None: that does not help.

    The answer is flags even where the value named a file. It is accepted by the result's jaxlib, and all of
    it is read.
    """
    for _ in range(_ROUNDS):
        if result.ok and result.ignored is None:
            return result.source.text
        text = _follow(result)
        if text is None or (text == result.source.text and result.source.file is None):
            return None
        # What is left may begin with anything; only what begins with a dash are flags.
        result = parse(text, result.catalog, files={})
    return None


def fixed_for_all(results: Sequence[ParseResult]) -> str | None:
    """The same for several jaxlibs at once: a text that each of them accepts.

    Args:
      results: of one value, with different catalogs; at least one.
    """
    catalogs = [result.catalog for result in results]
    text = fixed_text(results[0])
    for _ in range(_ROUNDS):
        if text is None:
            return None
        again = [parse(text, catalog, files={}) for catalog in catalogs]
        wrong = next((each for each in again if not each.ok or each.ignored is not None), None)
        if wrong is None:
            return text
        text = fixed_text(wrong)
    return None


def _replaced(text: str, span: Span, new: str) -> str:
    before, after = text[: span.start], text[span.end :]
    if not new.strip() and before[-1:] in ("", *WHITESPACE):
        # One blank is enough between the neighbours of what is gone; lines stay lines.
        after = after.lstrip(" \t")
        return (before.rstrip(" \t") if after[:1] in ("\r", "\n") else before) + after
    return before + new + after


def _follow(result: ParseResult) -> str | None:
    text, end = result.source.text, len(result.source.text)
    heeded = [
        each for each in advise(result) if each.severity is not Severity.NOTE and each.suggestion is not None
    ]
    if any(each.span is None for each in heeded):
        return next(each.suggestion for each in heeded if each.span is None)
    if not heeded:
        return None
    for each in reversed(heeded):
        if each.span is not None and each.span.end <= end:
            text = _replaced(text, each.span, str(each.suggestion))
            end = each.span.start
    return text.strip(" \t\r\n")
