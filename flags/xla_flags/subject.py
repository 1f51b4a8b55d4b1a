"""What all advice looks at: one parse result, and the question whether its jaxlib would accept another text.

Invariant: whatever is proposed to a person instead of a refused text was accepted here first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.parser import ParseResult, parse
from xla_flags.schema import Catalog
from xla_flags.spelling import flag_text, quoted
from xla_flags.tokens import WHITESPACE, Span, Token

# Characters that word processors and web pages put in the place of plain ones.
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_PLAIN = {
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033\uff02"), '"'),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u201b\u2032\uff07"), "'"),
    **dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000\v\f\x85\u2028"), " "),
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), ""),
    ord("\uff1d"): "=",
}
TYPOGRAPHIC_QUOTES = {chr(code): plain for code, plain in _PLAIN.items() if plain in ("'", '"')}
"""Quotes that word processors write -> the one on a keyboard."""

_LEADING_DASHES = re.compile(rf"^[-{_DASHES}]*[{_DASHES}][-{_DASHES}]*")
_ANY_DASH = re.compile(f"[{_DASHES}]")

SHELL_VARIABLE = re.compile(
    r"\$(?:\{\w{1,99}(?:[^\w}][^}]{0,99})?\}|[A-Za-z_]\w*|\([^)]{0,99}\))|%[A-Za-z_]\w{0,99}%", re.ASCII
)
"""A variable, or a command, that a shell would have replaced."""

SHELL_HINT = "single quotes, .env files and most launchers pass such text on as it is"


def plain_characters(text: str) -> str:
    """The text with typographic dashes, quotes and blanks as a keyboard has them."""
    text = text.translate(_PLAIN)
    words = re.split(r"(\s+)", text)
    return "".join(_ANY_DASH.sub("-", _LEADING_DASHES.sub("--", word)) for word in words)


def shown(text: str, limit: int = 60) -> str:
    """Text as a message quotes it: short, and on one line."""
    one_line = text.encode("unicode_escape", "surrogatepass").decode() if not text.isprintable() else text
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Subject:
    """A parse result that advice is given on."""

    result: ParseResult

    @property
    def catalog(self) -> Catalog:
        """The jaxlib."""
        return self.result.catalog

    def accepts(self, text: str) -> bool:
        """Whether the jaxlib reads all of a text of flags and goes on."""
        other = parse(text, self.catalog, files={})
        return other.ok and other.source.file is None and other.ignored is None

    def first_accepted(self, texts: Iterable[str | None]) -> str | None:
        """The first of these texts of flags that the jaxlib accepts."""
        return next((text for text in texts if text is not None and self.accepts(text)), None)

    def token_error(
        self, code: str, token: Token, message: str, suggestion: str | None = None, hint: str | None = None
    ) -> Diagnostic:
        """An error about a whole token."""
        return Diagnostic(Severity.ERROR, code, token.span, message, suggestion, hint)

    def value_error(
        self, code: str, token: Token, message: str, value: str | None = None, hint: str | None = None
    ) -> Diagnostic:
        """An error about a token's value, to be replaced by another one if that is accepted."""
        if value is None or not self.accepts(flag_text(token.name, value)):
            return Diagnostic(Severity.ERROR, code, value_span(token), message, None, hint)
        span, text = replacing_value(token, value)
        return Diagnostic(Severity.ERROR, code, span, message, text, hint)


def value_span(token: Token) -> Span:
    """Where a token's value stands; the whole token if it is empty or missing."""
    span = token.value_span
    return span if span.start < span.end else token.span


def replacing_value(token: Token, value: str) -> tuple[Span, str]:
    """(span, text) that give a token another value: just the value where no quotes are involved."""
    span = token.value_span
    if value and not token.quote and span.start < span.end and quoted(value) == value:
        return span, value
    return token.span, flag_text(token.name, value)


def word_at(text: str, start: int) -> Span:
    """From a position to the next white space."""
    end = start
    while end < len(text) and text[end] not in WHITESPACE:
        end += 1
    return Span(start, end)


def line_end(text: str, start: int) -> int:
    """The end of the line a position is in."""
    found = re.search(r"[\r\n]", text[start:])
    return len(text) if found is None else start + found.start()
