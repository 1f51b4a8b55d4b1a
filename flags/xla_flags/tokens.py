"""The text of `XLA_FLAGS`, or of the file it names, cut into tokens with their positions.

Mirrors xla/parse_flags_from_env.cc. Invariant: every character of the text is white space between tokens,
or part of exactly one token, or of the one `ignored` rest; nothing is reported as read that XLA does not
read.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

WHITESPACE = " \t\r\n"
"""All that separates flags. Not vertical tab, form feed or no-break space."""


class Span(NamedTuple):
    """Half-open range of characters (not bytes) in a `Source.text`."""

    start: int
    end: int


class Token(NamedTuple):
    """One piece of text that XLA compares with its flags.

    Attributes:
      text: as XLA rebuilds it: quotes and their backslashes gone, cut at the first NUL.
      span: where it stood, quotes included.
      value_start: first character of the value as written (after `=` and a quote); `span.end` without one.
      quote: the quote character around the value, or "".
      closed: False if a quoted value ran to the end of the text because its quote never closed.
    """

    text: str
    span: Span
    value_start: int
    quote: str = ""
    closed: bool = True

    @property
    def name(self) -> str:
        """The flag's name: what stands between a leading `--` and the first `=`; dashes stay if not two."""
        head = self.text.partition("=")[0]
        return head[2:] if head.startswith("--") else head

    @property
    def value(self) -> str | None:
        """What follows the first `=`; None if there is none."""
        _, equals, value = self.text.partition("=")
        return value if equals else None

    @property
    def value_span(self) -> Span:
        """Where the value stands, without its quotes; empty at the token's end if there is none."""
        end = self.span.end - (1 if self.quote and self.closed else 0)
        return Span(min(self.value_start, end), end)


@dataclass(frozen=True, slots=True)
class Source:
    """Text that was read as flags.

    Attributes:
      value: the variable's value; None: not set.
      text: the flags: `value` itself, or the content of the file it names; "" if that could not be opened.
      file: the file's name exactly as XLA opened it, which is the whole value; None: `value` is inline.
      openable: False if there is a file name and nothing can be opened under it.
    """

    value: str | None
    text: str
    file: str | None = None
    openable: bool = True


@dataclass(frozen=True, slots=True)
class Tokens:
    """What XLA reads of a text.

    Attributes:
      tokens: in order.
      stopped_at: position of the first character that XLA refuses to read on from; None: it read to the end.
      ignored: from `stopped_at` to the end of the text; None: nothing is ignored.
    """

    tokens: tuple[Token, ...]
    stopped_at: int | None
    ignored: Span | None


def is_inline(value: str) -> bool:
    """Whether a value of the variable is flags, not a file name: after white space it begins with `-`."""
    return value.lstrip(WHITESPACE).startswith("-")


def decode(text: str | bytes) -> str:
    """Text as one character per byte that is not UTF-8 (surrogateescape), as `os.environ` shows it."""
    return text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")


def read_source(
    value: str | bytes | None,
    files: Mapping[str, str | bytes] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Source:
    """Finds the text that a value of the variable stands for.

    Args:
      value: of `XLA_FLAGS`; None: not set. A C environment cannot hold NUL: the value ends before the first.
      files: name -> content. If given, stands for the directory XLA runs in, and only absolute names reach
        the real file system. If None, files are really opened.
      cwd: the directory that relative names are opened in; None: the process's own.
    """
    if value is None:
        return Source(None, "")
    value = decode(value).partition("\0")[0]
    if not value or is_inline(value):
        return Source(value, value)
    content = _read_file(value, files, cwd)
    return Source(value, "" if content is None else decode(content), value, content is not None)


def _read_file(
    name: str, files: Mapping[str, str | bytes] | None, cwd: str | os.PathLike[str] | None
) -> str | bytes | None:
    """Content under a name; a directory reads as empty, as XLA ignores read errors; None: unopenable."""
    if files is not None and not name.startswith("/"):
        return _read_mapping(name, files)
    # Not pathlib, which would drop a final slash and so open a file that C does not.
    path = name if cwd is None else os.path.join(cwd, name)  # noqa: PTH118
    try:
        handle = os.open(path, os.O_RDONLY)
    except (OSError, ValueError):
        return None
    try:
        with os.fdopen(handle, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _read_mapping(name: str, files: Mapping[str, str | bytes]) -> str | bytes | None:
    """The same in a directory that holds just `files`."""
    for known in (name, posixpath.normpath(name)):
        if known in files and not name.endswith("/"):
            return files[known]
    path = posixpath.normpath(name)
    directory = path in (".", "..") or any(
        posixpath.normpath(known).startswith(path + "/") for known in files
    )
    return b"" if directory else None


# A name, then `=` and an opening quote, or all up to the next white space. NUL counts as one of the name's
# characters and as a quote, because XLA asks strchr() about it.
_TOKEN = re.compile(r"(-[A-Za-z0-9_\-\0]*+)(?:=(['\"\0])|([^ \t\r\n]*+)[ \t\r\n]*+)")
_BLANK = re.compile(r"[ \t\r\n]*+")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_DOUBLE_QUOTED = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


def tokenize(text: str) -> Tokens:
    """Cuts text as XLA does, in one pass.

    Args:
      text: flags, not a file name; any characters.
    """
    tokens: list[Token] = []
    position = _end(_BLANK, text, 0)
    while match := _TOKEN.match(text, position):
        if match.end(2) < 0:
            tokens.append(_bare(match))
            position = match.end()
        else:
            tokens.append(token := _quoted(match))
            position = _end(_BLANK, text, token.span.end)
    if position < len(text):
        return Tokens(tuple(tokens), position, Span(position, len(text)))
    return Tokens(tuple(tokens), None, None)


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where a match ends of a pattern that matches everywhere, be it nothing."""
    match = pattern.match(text, start)
    return start if match is None else match.end()


def _bare(match: re.Match[str]) -> Token:
    """A token that extends to the next white space, of a match of `_TOKEN`."""
    name, _, rest = match.groups()
    start, end = match.span(3)
    # No name holds `=`.
    equals = rest.find("=")
    value_start = end if equals < 0 else start + equals + 1
    text = name + rest
    if "\0" in text:
        text = text.partition("\0")[0]
    return Token(text, Span(match.start(), end), value_start)


def _quoted(match: re.Match[str]) -> Token:
    """A token with a quoted value, of a match of `_TOKEN` that ends after the opening quote."""
    text, quote, value_start = match.string, match[2], match.end()
    if quote == '"':
        end = _end(_DOUBLE_QUOTED, text, value_start)
        closed = text.startswith('"', end)
        # A backslash that is the very last character has nothing to escape and stays.
        end = end if closed else len(text)
        value = _ESCAPE.sub(r"\1", text[value_start:end])
    else:
        end = text.find(quote, value_start)
        closed = end >= 0
        end = end if closed else len(text)
        value = text[value_start:end]
    whole = f"{match[1]}={value}".partition("\0")[0]
    return Token(whole, Span(match.start(), end + closed), value_start, quote, closed)
