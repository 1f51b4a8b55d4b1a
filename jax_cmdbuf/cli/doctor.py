"""``jax-cmdbuf doctor``: why SKIP_PROFILED works here, or why not.

Invariant: the exit status is 0 exactly where XLA would run a program with SKIP_PROFILED if asked to.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from jax_cmdbuf.cli.output import print_rich, progress, write_output

if TYPE_CHECKING:
    from rich.console import Console

    from jax_cmdbuf.api.doctor import Report

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "doctor"
HELP = "look at versions, flags, allocator, devices and driver, and say what stops SKIP_PROFILED here"

_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("problem", "bold red")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--output", "-o", metavar="FILE", help="write there instead of to the terminal")


def run(arguments: argparse.Namespace) -> int:
    """Examines and shows the findings; 0 if SKIP_PROFILED would be effective, else 1."""
    from jax_cmdbuf.api.doctor import examine

    with progress("asking JAX for its devices"):
        report = examine()
    if arguments.format == "json":
        write_output(json.dumps(report.to_json(), indent=1) + "\n", arguments.output)
    else:
        print_rich(lambda console: _show(report, console), arguments.output)
    return 0 if report.is_effective else 1


def _show(report: Report, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False)
    for title in ("", "", "found", "what to do"):
        table.add_column(title, overflow="fold", no_wrap=title == "")
    for finding in report.findings:
        word, style = _MARKS[finding.health]
        # Text, so that brackets in flags and paths are not read as markup.
        table.add_row(Text(word, style), Text(finding.topic), Text(finding.found), Text(finding.advice))
    console.print(table)
    stops = [finding for finding in report.findings if finding.stops]
    if not stops:
        console.print(Text("SKIP_PROFILED would be effective here.", "green"))
        return
    topics = ", ".join(dict.fromkeys(finding.topic for finding in stops))
    console.print(Text(f"SKIP_PROFILED would not be effective here, because of: {topics}.", "bold"))
