"""Tokens and a catalog to what XLA would do: the DebugOptions, or the message it would end the process with.

Mirrors xla/parse_flags_from_env.cc, xla/tsl/util/command_line_flags.cc and xla/debug_options_flags.cc.
Invariant: the verdict depends on the text, the files and the catalog alone; remarks about it are `advise`'s
and change nothing.
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from xla_flags.diagnostics import Diagnostic
from xla_flags.errors import ProcessWouldEndError
from xla_flags.options import DebugOptions, typed
from xla_flags.schema import BOOL_KINDS, FORCED, Catalog, FlagSpec
from xla_flags.scratch import FatalValue, Scratch
from xla_flags.setters import SETTERS
from xla_flags.tokens import Source, Span, Token, Tokens, read_source, tokenize


class Outcome(enum.StrEnum):
    """How reading the flags ends."""

    OK = "ok"
    FATAL = "fatal"
    """The process ends with `ParseResult.message`."""
    USAGE_ERROR = "usage_error"
    """The process ends with `Flag parsing failed.` and a part of the flag table."""


class Assignment(NamedTuple):
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
      message: what the process ends with; the key line of it after a usage error; None if it goes on. Whole,
        where XLA's log cuts an entry at some 14,900 bytes.
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
        """Fields that differ from the default -> value as JSON has it; None if the process ends.

        Floats that JSON has not are `"inf"`, `"-inf"` and `"nan"`.
        """
        if not self.ok:
            return None
        fields = self.catalog.fields
        return {
            name: json_value(value) for name, value in self.plain.items() if value != fields[name].default
        }

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
    catalog = Catalog.installed() if catalog is None else catalog
    source = read_source(text, files, cwd)
    tokens = tokenize(source.text)
    walk = _Walk(catalog)
    outcome, message = _verdict(source, tokens, walk)
    if outcome is Outcome.OK:
        _settle(tokens, walk)
    return ParseResult(
        catalog=catalog,
        source=source,
        outcome=outcome,
        message=message,
        usage=source.value if outcome is Outcome.USAGE_ERROR else None,
        log=tuple(walk.scratch.log),
        tokens=tokens.tokens,
        stopped_at=tokens.stopped_at,
        ignored=tokens.ignored,
        assignments=tuple(walk.assignments),
        unknown=tuple(walk.unknown),
        plain=walk.scratch.plain,
    )


class _Walk:
    """One or more passes over the tokens, from left to right, and what they left behind."""

    __slots__ = ("assignments", "bad", "scratch", "unknown")

    def __init__(self, catalog: Catalog) -> None:
        self.scratch = Scratch(catalog)
        self.assignments: list[Assignment] = []
        self.unknown: list[Token] = []
        self.bad = False

    def run(self, tokens: tuple[Token, ...]) -> None:
        """Gives each token to the setter of the flag it names.

        Raises:
          FatalValue: XLA ends the process at a value.
        """
        flags = self.scratch.catalog.flags
        for index, token in enumerate(tokens):
            text = token.text
            if text == "--":
                self.unknown += tokens[index:]
                return
            name, equals, value = text.partition("=")
            flag = flags.get(name[2:]) if name.startswith("--") else None
            if flag is None or not (equals or flag.kind in BOOL_KINDS):
                self.unknown.append(token)
            else:
                self._set(token, flag, value if equals else "true")

    def _set(self, token: Token, flag: FlagSpec, value: str) -> None:
        log = self.scratch.log
        logged = len(log)
        try:
            error = SETTERS[flag.kind](flag, value, self.scratch)
        except FatalValue as fatal:
            self.assignments.append(Assignment(token, flag, value, str(fatal), tuple(log[logged:])))
            raise
        if error is not None:
            self.bad = True
        lines = tuple(log[logged:]) if len(log) > logged else ()
        self.assignments.append(Assignment(token, flag, value, error, lines))


def _verdict(source: Source, tokens: Tokens, walk: _Walk) -> tuple[Outcome, str | None]:
    """Walks the tokens; how that ends, and with which message."""
    if not source.openable:
        name = source.file
        return Outcome.FATAL, (
            f'Could not open file "{name}" to read flags for environment variable "XLA_FLAGS". '
            f'(We assumed "{name}" was a file name because it did not start with a "--".)'
        )
    try:
        walk.run(tokens.tokens)
    except FatalValue as fatal:
        return Outcome.FATAL, str(fatal)
    unknown = walk.unknown
    if walk.bad or (unknown and unknown[0].text == "--help"):
        return Outcome.USAGE_ERROR, "Flag parsing failed."
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        return Outcome.FATAL, f"Unknown flag{plural} in XLA_FLAGS: {' '.join(each.text for each in unknown)}"
    return Outcome.OK, None


def _settle(tokens: Tokens, walk: _Walk) -> None:
    """What happens between the flags being good and `CompileOptions()` being there."""
    scratch = walk.scratch
    if scratch.plain.get("xla_flags_reset"):
        # The first request for the options reads the variable, and being asked to, reads it once more.
        again = _Walk(scratch.catalog)
        again.scratch = scratch
        again.run(tokens.tokens)
    for name in FORCED & scratch.plain.keys():
        scratch.plain[name] = scratch.catalog.fields[name].default
    # Logged when the process exits, in no order.
    scratch.log += [
        f'E Compiler fuel for "{name}" was never consumed. '
        "This may be a typo in the --xla_fuel flag you passed."
        for name in sorted(scratch.fuel)
    ]


def json_value(value: Any) -> Any:
    """A plain value as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
