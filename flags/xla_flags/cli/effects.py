"""What became of each flag: asked for, in effect, default.

Invariant: one row for each token that names a flag, in the order of the text.
"""

from __future__ import annotations

from typing import Any

from rich.text import Text

from xla_flags.cache_key import in_cache_key
from xla_flags.cli.output import console, say, table
from xla_flags.literals import to_float32
from xla_flags.parser import Assignment, ParseResult, json_value
from xla_flags.tokens import Token

MAX_ROWS = 500
"""More tokens than any jaxlib has flags are counted, not shown; JSON has them all."""
_MAX_CELL = 1000

_REMARKS = {
    "already-default": "is the default",
    "overridden": "replaced later",
    "no-effect": "has no effect",
    "forced": "overruled by jaxlib",
}


def effect_rows(result: ParseResult) -> list[dict[str, Any]]:
    """For each flag: `flag`, `asked`, `accepted`, `value`, `default`, `differs`, `remark`, `in_cache_key`."""
    remarks = _remarks(result)
    return [_row(result, each, remarks.get(each.token.span.start)) for each in result.assignments]


def _row(result: ParseResult, assignment: Assignment, remark: str | None) -> dict[str, Any]:
    flag = assignment.flag
    field = flag.field
    default = field.default if field is not None else None
    value = result.plain.get(field.name, default) if field is not None else None
    return {
        "flag": flag.name,
        "asked": assignment.value,
        "accepted": assignment.error is None,
        "value": _json(value) if result.ok else None,
        "default": _json(default),
        "differs": result.ok and value != default,
        "remark": remark,
        "in_cache_key": in_cache_key(flag.name, result.catalog.version),
    }


def _json(value: Any) -> Any:
    return json_value(value)


def _remarks(result: ParseResult) -> dict[int, str]:
    """Start of a token -> what is remarkable about its effect."""
    spans = {each.span.start: each.span for each in result.tokens}
    found: dict[int, str] = {}
    for remark in result.diagnostics:
        if remark.span is None or remark.code not in _REMARKS:
            continue
        start = next(
            (start for start, span in spans.items() if span.start <= remark.span.start < span.end), None
        )
        if start is not None:
            found[start] = _REMARKS[remark.code]
    return found


def cell(result: ParseResult, token: Token) -> str:
    """What became of a token, in a word or two."""
    if any(each.span == token.span for each in result.unknown):
        return "unknown"
    if any(each.token.span == token.span for each in result.bad):
        return "refused"
    return _remarks(result).get(token.span.start, "ok")


def plain(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        digits = (f"{value:.{count}g}" for count in range(1, 10))
        return next((text for text in digits if to_float32(float(text)) == value), str(value))
    if isinstance(value, list):
        return ", ".join(map(plain, value)) if value else "(none)"
    if isinstance(value, dict):
        return ", ".join(f"{key}={plain(each)}" for key, each in value.items()) if value else "(none)"
    return str(value) if value not in ("", None) else "(empty)" if value == "" else "-"


def cut(text: str) -> str:
    """What a table shows of a text that may have any length."""
    return text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…"


def print_effects(result: ParseResult) -> None:
    """Prints the table, if the process goes on and there is something to show."""
    rows = effect_rows(result)
    if not result.ok or not rows:
        return
    shown = [
        [
            each["flag"],
            cut(plain(each["asked"])),
            Text(cut(plain(each["value"])), style="bold" if each["differs"] else ""),
            plain(each["default"]),
            each["remark"] or "",
        ]
        for each in rows[:MAX_ROWS]
    ]
    console().print()
    console().print(table(("flag", "asked for", "in effect", "default", ""), shown))
    if len(rows) > MAX_ROWS:
        say(f"and {len(rows) - MAX_ROWS} more")
