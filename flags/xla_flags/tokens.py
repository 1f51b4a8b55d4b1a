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


# One token: a name, then `=` and an opening quote, or all up to the next white space. NUL counts as one of
# the name's characters and as a quote, because XLA asks strchr() about it.
_NAME = re.compile(r"[A-Za-z0-9_\-\0]*")
_BLANK = re.compile(r"[ \t\r\n]*")
_BARE = re.compile(r"[^ \t\r\n]*")
_QUOTES = "'\"\0"
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_DOUBLE_QUOTED = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


def tokenize(text: str) -> Tokens:
    """Cuts text as XLA does, in one pass.

    Args:
      text: flags, not a file name; any characters.
    """
    tokens: list[Token] = []
    position = _BLANK.match(text).end()  # type: ignore[union-attr]
    while position < len(text) and text[position] == "-":
        token = _token(text, position)
        tokens.append(token)
        position = _BLANK.match(text, token.span.end).end()  # type: ignore[union-attr]
    if position < len(text):
        return Tokens(tuple(tokens), position, Span(position, len(text)))
    return Tokens(tuple(tokens), None, None)


def _token(text: str, start: int) -> Token:
    """The token that begins at `start`."""
    head = _NAME.match(text, start).end()  # type: ignore[union-attr]
    if text.startswith("=", head) and head + 1 < len(text) and text[head + 1] in _QUOTES:
        return _quoted(text, start, head + 2, text[head + 1])
    end = _BARE.match(text, head).end()  # type: ignore[union-attr]
    whole = text[start:end]
    equals = whole.find("=")
    value_start = end if equals < 0 else start + equals + 1
    return Token(whole.partition("\0")[0], Span(start, end), value_start)


def _quoted(text: str, start: int, value_start: int, quote: str) -> Token:
    """A token with a quoted value, whose first character is at `value_start`."""
    if quote == '"':
        end = _DOUBLE_QUOTED.match(text, value_start).end()  # type: ignore[union-attr]
        closed = text.startswith('"', end)
        # A backslash that is the very last character has nothing to escape and stays.
        end = end if closed else len(text)
        value = _ESCAPE.sub(r"\1", text[value_start:end])
    else:
        end = text.find(quote, value_start)
        closed = end >= 0
        end = end if closed else len(text)
        value = text[value_start:end]
    whole = (text[start : value_start - 1] + value).partition("\0")[0]
    return Token(whole, Span(start, end + closed), value_start, quote, closed)
