"""Tokens and a catalog to what XLA would do: the DebugOptions, or the message it would end the process with.

Mirrors xla/parse_flags_from_env.cc, xla/tsl/util/command_line_flags.cc and xla/debug_options_flags.cc.
Invariant: the verdict depends on the text, the files and the catalog alone; remarks about it are `advise`'s
and change nothing.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xla_flags.diagnostics import Diagnostic
from xla_flags.errors import ProcessWouldEndError
from xla_flags.options import DebugOptions, typed
from xla_flags.schema import Catalog, FlagSpec
from xla_flags.tokens import Source, Span, Token


class Outcome(enum.StrEnum):
    """How reading the flags ends."""

    OK = "ok"
    FATAL = "fatal"
    """The process ends with `ParseResult.message`."""
    USAGE_ERROR = "usage_error"
    """The process ends with `Flag parsing failed.` and a part of the flag table."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A token that named a known flag, and what became of its value.

    Attributes:
      token: where it stood.
      flag: the flag.
      value: what its setter was given; `true` for a bool without `=`.
      error: why the value is bad, in our words; None: it is good.
      log: what XLA logs about it, as in `ParseResult.log`.
    """

    token: Token
    flag: FlagSpec
    value: str
    error: str | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParseResult:
    """What a jaxlib does with a value of `XLA_FLAGS`.

    Attributes:
      catalog: the jaxlib.
      source: the text that was read, and from where. Positions below count its characters.
      outcome: how it ends. Compares equal to `"ok"`, `"fatal"` and `"usage_error"`.
      message: what the process ends with; the key line of it after a usage error; None if it goes on.
      usage: after a usage error, the text after `usage: `.
      log: lines logged besides, each led by its severity: `E Couldn't interpret ...`.
      tokens: all tokens that were read.
      stopped_at: position where XLA stopped reading; None: nowhere.
      ignored: from there to the end, never read; None: nothing.
      assignments: tokens that named known flags, good and bad, in order; ends at a value that is fatal.
      unknown: tokens that named none.
      plain: fields that some flag wrote -> value: enums as names, lists, dicts; floats as float.
    """

    catalog: Catalog
    source: Source
    outcome: Outcome
    message: str | None
    usage: str | None
    log: tuple[str, ...]
    tokens: tuple[Token, ...]
    stopped_at: int | None
    ignored: Span | None
    assignments: tuple[Assignment, ...]
    unknown: tuple[Token, ...]
    plain: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether the process goes on."""
        return self.outcome is Outcome.OK

    @property
    def bad(self) -> tuple[Assignment, ...]:
        """The assignments whose value is bad."""
        return tuple(each for each in self.assignments if each.error is not None)

    @property
    def values(self) -> dict[str, Any]:
        """Fields that some flag wrote -> typed value, whether it differs from the default or not."""
        fields = self.catalog.fields
        return {name: typed(fields[name], value) for name, value in self.plain.items()}

    @property
    def changed(self) -> dict[str, Any] | None:
        """Fields that differ from the default -> value as JSON has it; None if the process ends."""
        raise NotImplementedError

    @property
    def debug_options(self) -> DebugOptions:
        """The options the process goes on with.

        Raises:
          ProcessWouldEndError: it does not go on.
        """
        if not self.ok:
            raise ProcessWouldEndError(f"jaxlib {self.catalog.version} would end the process: {self.message}")
        tokens = {each.flag.field.name: each.token for each in self.assignments if each.flag.field}
        return DebugOptions(self.catalog, self.plain, tokens)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks that a person can act on, computed on demand by `advise.advise`."""
        from xla_flags.advise import advise

        return advise(self)


def parse(
    text: str | bytes | None,
    catalog: Catalog | None = None,
    *,
    files: Mapping[str, str | bytes] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> ParseResult:
    """Says what a jaxlib does with a value of `XLA_FLAGS`.

    Args:
      text: the variable's value: flags, or the name of a file with flags; None: not set.
      catalog: the jaxlib; None: the installed one.
      files: file name -> content, used instead of the file system; None: a named file is really opened.
      cwd: the directory that relative file names are opened in; None: the process's own.

    Raises:
      UnknownJaxlibError: no catalog was given and no jaxlib is installed.
    """
    raise NotImplementedError
