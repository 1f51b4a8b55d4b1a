"""Printing: JSON for programs, tables and remarks for people.

Invariant: JSON goes to stdout alone; what people read fits the terminal, or keeps its lines whole in a pipe.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.rendering import printable, render_one

_PIPE_WIDTH = 140
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def print_json(value: Any) -> None:
    """Prints a value as JSON on one line, or on many where it is large."""
    text = json.dumps(value, ensure_ascii=True)
    sys.stdout.write((text if len(text) <= _PIPE_WIDTH else json.dumps(value, indent=1)) + "\n")


def print_json_line(value: Any) -> None:
    """Prints a value as JSON on exactly one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def console() -> Console:
    """The console to print on."""
    found = Console(highlight=False, soft_wrap=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found = Console(highlight=False, width=_PIPE_WIDTH)
    return found


def say(text: str = "", style: str = "") -> None:
    """Prints a line of text as it is, never folded."""
    console().print(Text(printable(text), style=style), soft_wrap=True)


def complain(text: str) -> None:
    """Prints one sentence on stderr."""
    print(f"xla-flags: {' '.join(printable(text).split())}", file=sys.stderr)


def print_remark(diagnostic: Diagnostic, text: str, indent: str = "") -> None:
    """Prints a remark with the text it is about."""
    style = _STYLES[diagnostic.severity]
    for number, line in enumerate(render_one(diagnostic, text).splitlines()):
        shown = Text(indent + line)
        if number == 0:
            shown.stylize(style, len(indent), len(indent) + line.find("]:") + 1)
        elif line.startswith("  | ") and set(line[4:].strip()) == {"^"}:
            shown.stylize(style)
        console().print(shown, soft_wrap=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A plain table; columns fold only if the terminal is too narrow."""
    made = Table(show_header=any(headings), box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, heading in enumerate(headings):
        # What a row is about stays whole; a name in two pieces can be neither read nor copied.
        made.add_column(heading, overflow="fold", header_style="bold", no_wrap=index == 0)
    for row in rows:
        made.add_row(*(each if isinstance(each, Text) else Text(printable(each)) for each in row))
    return made


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """A remark as JSON has it; spans count characters of the text that was read."""
    return {
        "severity": str(diagnostic.severity),
        "code": diagnostic.code,
        "span": None if diagnostic.span is None else list(diagnostic.span),
        "message": diagnostic.message,
        "suggestion": diagnostic.suggestion,
        "hint": diagnostic.hint,
    }
