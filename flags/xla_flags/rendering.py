"""Remarks as text: the line they are about, carets under the offending part, and what to write instead.

Invariant: what is printed is printable and narrow, whatever bytes the flags hold; carets stand under the
characters they mean.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from xla_flags.diagnostics import Diagnostic
from xla_flags.parser import ParseResult
from xla_flags.tokens import Span

WIDTH = 100
"""Columns of the text shown around the offending part."""
_MARGIN = "  | "


def render(result: ParseResult, diagnostics: Iterable[Diagnostic] | None = None) -> str:
    """Remarks on a parse result as lines of text; "" if there are none.

    Args:
      result: whose text is shown.
      diagnostics: the remarks; None: all of `result.diagnostics`.
    """
    chosen = result.diagnostics if diagnostics is None else diagnostics
    return "\n".join(render_one(each, _text_of(each, result)) for each in chosen)


def _text_of(diagnostic: Diagnostic, result: ParseResult) -> str:
    source = result.source
    return source.text if diagnostic.span is not None else (source.value or "")


def render_one(diagnostic: Diagnostic, text: str) -> str:
    """One remark.

    Args:
      diagnostic: the remark.
      text: what its span counts the characters of.
    """
    lines = [f"{diagnostic.severity}[{diagnostic.code}]: {printable(diagnostic.message)}"]
    if text:
        lines += _excerpt(text, diagnostic.span or Span(0, len(text)))
    if diagnostic.suggestion is not None:
        lines.append(f"  = {_instead(diagnostic.suggestion)}")
    if diagnostic.hint is not None:
        lines.append(f"  = {printable(diagnostic.hint)}")
    return "\n".join(lines)


def _instead(suggestion: str) -> str:
    return f"write: {printable(suggestion)}" if suggestion.strip() else "leave it out"


def printable(text: str) -> str:
    """The text with each character that does not print, or not in one column, replaced by one that does."""
    return text if text.isascii() and text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character in "\t\n\r":
        return " "
    if not character.isprintable() or unicodedata.combining(character):
        return "\ufffd"
    return character


def _excerpt(text: str, span: Span) -> list[str]:
    """The line a span begins in, cut to a window around it, and the carets."""
    start, end = span
    first = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    breaks = [each for each in (text.find("\n", start), text.find("\r", start)) if each >= 0]
    last = min(breaks, default=len(text))
    if last == start and end > start:
        last = min(end, len(text))
    end = max(min(end, last), start + 1)
    if last - first > WIDTH:
        first = max(first, min(start - WIDTH // 4, max(last - WIDTH, first)))
        shown_end = min(last, first + WIDTH)
    else:
        shown_end = last
    lead = "…" if first > 0 and text[first - 1] not in "\r\n" else ""
    tail = "…" if shown_end < last else ""
    carets = " " * (len(lead) + start - first) + "^" * (min(end, max(shown_end, start + 1)) - start)
    return [_MARGIN + lead + printable(text[first:shown_end]) + tail, _MARGIN + carets]
