"""What to do about an ``XLA_FLAGS`` that an installed XLA would end the process for.

Pure: text and flag tables in, a :class:`FlagCheck` out; ``plugin`` acts on it. Invariants: a repaired text is
one that every table accepts, and it differs from the user's only where it had to; update modes that this
package implements itself are never lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.options import CommandBufferUpdateMode
from xla_flags.parser import ParseResult, parse
from xla_flags.schema import Catalog
from xla_flags.spelling import join, token_text
from xla_flags.tokens import Span, Token

__all__ = ["UPDATE_MODE_FLAG", "FlagCheck", "FlagPolicy", "check_flags"]

UPDATE_MODE_FLAG = "xla_gpu_command_buffer_update_mode"
# What the decorator does itself where XLA cannot.
_OURS = {
    mode.name: mode for mode in (CommandBufferUpdateMode.SKIP_TEMP, CommandBufferUpdateMode.SKIP_PROFILED)
}
_MOST_REPAIRS = 100


class FlagPolicy(StrEnum):
    """What ``JAX_CMDBUF_FLAGS`` asks for."""

    WARN = "warn"
    """Explain what XLA is about to refuse; only take out the update modes that we stand in for."""
    REPAIR = "repair"
    """Drop or rewrite what XLA would refuse, and say so."""
    OFF = "off"
    """Leave the variable alone."""


class FlagCheck(NamedTuple):
    """The outcome.

    Attributes:
      text: the variable's value from now on; the user's own where nothing had to change.
      update_mode: an update mode that was taken out because an XLA does not know it: the decorator's default.
      refusals: table's title -> what its XLA would end the process with, given ``text``.
      lines: what to tell the user, one sentence each; the severity first.
    """

    text: str
    update_mode: CommandBufferUpdateMode | None
    refusals: Mapping[str, str]
    lines: tuple[tuple[Severity, str], ...]

    @property
    def is_accepted(self) -> bool:
        """Whether every XLA goes on with ``text``."""
        return not self.refusals


def check_flags(
    text: str,
    catalogs: Mapping[str, Catalog],
    policy: FlagPolicy,
    *,
    files: Mapping[str, str | bytes] | None = None,
) -> FlagCheck:
    """Checks and, as far as the policy goes, repairs a value of ``XLA_FLAGS``.

    Args:
      text: the value: flags, or the name of a file of flags.
      catalogs: title of each XLA that will parse it ("jaxlib 0.12.0.1") -> its flags.
      policy: how far to go; OFF only looks.
      files: file name -> content, instead of the file system.
    """
    lines: list[tuple[Severity, str]] = []
    mode: CommandBufferUpdateMode | None = None
    results = _parse_all(text, catalogs, files)
    if policy is not FlagPolicy.OFF:
        text, mode, told = _take_out_modes(text, results)
        lines += told
        results = _parse_all(text, catalogs, files) if told else results
    if policy is FlagPolicy.REPAIR:
        text, told = _repair(text, catalogs, results, files)
        lines += told
        results = _parse_all(text, catalogs, files) if told else results
    refusals = {title: result.message or "" for title, result in results.items() if not result.ok}
    lines += _explain(results)
    return FlagCheck(text, mode, refusals, tuple(lines))


def _parse_all(
    text: str, catalogs: Mapping[str, Catalog], files: Mapping[str, str | bytes] | None
) -> dict[str, ParseResult]:
    return {title: parse(text, catalog, files=files) for title, catalog in catalogs.items()}


def _take_out_modes(
    text: str, results: Mapping[str, ParseResult]
) -> tuple[str, CommandBufferUpdateMode | None, list[tuple[Severity, str]]]:
    """Takes out update modes that some XLA does not know and we implement."""
    taken: set[Span] = set()
    told = []
    for title, result in results.items():
        for bad in result.bad:
            if bad.flag.name != UPDATE_MODE_FLAG or bad.value not in _OURS or bad.token.span in taken:
                continue
            taken.add(bad.token.span)
            told.append(
                (
                    Severity.WARNING,
                    f"{title} has no update mode {bad.value}; it was taken out of XLA_FLAGS and is now the "
                    "default of jax_cmdbuf.command_buffer",
                )
            )
    if not taken:
        return text, None, []
    result = next(iter(results.values()))
    modes = [token for token in result.tokens if token.name == UPDATE_MODE_FLAG]
    # XLA lets the last one win, so an earlier one that was taken out decides nothing.
    last = modes[-1]
    mode = _OURS.get(last.value or "") if last.span in taken else None
    return _without(result, taken), mode, told


def _without(result: ParseResult, spans: set[Span], replaced: Mapping[Span, str] | None = None) -> str:
    """The tokens that stay, as one inline value; what XLA would not have read stays unread."""
    replaced = replaced or {}
    return join(
        replaced.get(token.span, token_text(token.text)) for token in result.tokens if token.span not in spans
    )


def _repair(
    text: str,
    catalogs: Mapping[str, Catalog],
    results: dict[str, ParseResult],
    files: Mapping[str, str | bytes] | None,
) -> tuple[str, list[tuple[Severity, str]]]:
    """Rewrites or drops the first offending token, again and again, until every XLA accepts the text."""
    told: list[tuple[Severity, str]] = []
    for _ in range(_MOST_REPAIRS):
        refused = next(((title, result) for title, result in results.items() if not result.ok), None)
        if refused is None:
            return text, told
        title, result = refused
        text, said = _repair_one(title, result, catalogs)
        told.append((Severity.WARNING, said))
        results = _parse_all(text, catalogs, files)
    told.append((Severity.WARNING, "XLA_FLAGS could not be repaired piece by piece and was emptied"))
    return "", told


def _repair_one(title: str, result: ParseResult, catalogs: Mapping[str, Catalog]) -> tuple[str, str]:
    """The text without its first offence, and what was done."""
    offender = _offender(result)
    if offender is None:  # the value names a file that cannot be read
        fixed = _whole_suggestion(result, catalogs)
        if fixed is not None:
            return fixed, f"{title} would refuse XLA_FLAGS ({result.message}); it is now {fixed}"
        return "", f"{title} would refuse XLA_FLAGS ({result.message}); it was emptied"
    suggestion = _suggestion(result, offender, catalogs)
    if not suggestion:
        return _without(
            result, {offender.span}
        ), f"{title} refuses {offender.text}; it was dropped from XLA_FLAGS"
    return (
        _without(result, set(), {offender.span: suggestion}),
        f"{title} refuses {offender.text}; it was replaced by {suggestion} in XLA_FLAGS",
    )


def _offender(result: ParseResult) -> Token | None:
    """What XLA names first: a bad value, which hides unknown flags, or else the first unknown flag."""
    if result.bad:
        return result.bad[0].token
    # An unread `--` makes all that follows unknown; without it they may be fine.
    return result.unknown[0] if result.unknown else None


def _suggestion(result: ParseResult, offender: Token, catalogs: Mapping[str, Catalog]) -> str | None:
    """What advice puts in the token's place, if every XLA accepts that."""
    for remark in result.diagnostics:
        if remark.severity is not Severity.ERROR or remark.suggestion is None or remark.span is None:
            continue
        start, end = remark.span
        if not (offender.span.start <= start and end <= offender.span.end):
            continue
        written = result.source.text[offender.span.start : offender.span.end]
        offset = offender.span.start
        text = written[: start - offset] + remark.suggestion + written[end - offset :]
        if _all_accept(text, catalogs):
            return text
    return None


def _whole_suggestion(result: ParseResult, catalogs: Mapping[str, Catalog]) -> str | None:
    for remark in result.diagnostics:
        if remark.suggestion is not None and _all_accept(remark.suggestion, catalogs):
            return remark.suggestion
    return None


def _all_accept(text: str, catalogs: Mapping[str, Catalog]) -> bool:
    results = _parse_all(text, catalogs, {}).values()
    return all(result.ok and result.source.file is None and result.ignored is None for result in results)


def _explain(results: Mapping[str, ParseResult]) -> list[tuple[Severity, str]]:
    """Errors and warnings of advice, each once, naming every XLA that it holds for.

    Only where XLA refuses the text or does not read all of it: advice on what works costs time that a
    program's start should not.
    """
    titles: dict[Diagnostic, list[str]] = {}
    for title, result in results.items():
        if result.ok and result.ignored is None:
            continue
        for remark in result.diagnostics:
            if remark.severity is not Severity.NOTE:
                titles.setdefault(remark, []).append(title)
    return [(remark.severity, _sentence(remark, holds_for)) for remark, holds_for in titles.items()]


def _sentence(remark: Diagnostic, titles: Sequence[str]) -> str:
    end = "would end this process: " if remark.severity is Severity.ERROR else ""
    text = (
        f"XLA_FLAGS: {' and '.join(titles)} {end}{remark.message}" if end else f"XLA_FLAGS: {remark.message}"
    )
    if remark.suggestion is not None:
        text += f"; write {remark.suggestion}" if remark.suggestion else "; leave it out"
    return f"{text}. {remark.hint}" if remark.hint else text
