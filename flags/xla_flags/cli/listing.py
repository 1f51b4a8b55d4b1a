"""`xla-flags list`: all flags of a jaxlib, or those whose name fits a pattern.

Invariant: what is listed is what the jaxlib accepts, nothing that merely occurs in its binary.
"""

from __future__ import annotations

import argparse
import fnmatch
from typing import Any

from xla_flags import cli
from xla_flags.cli.choice import add_jaxlib_option, choose
from xla_flags.cli.effects import plain
from xla_flags.cli.output import console, print_json, say, table
from xla_flags.cli.words import add_format_option, flag_text
from xla_flags.history import history_of
from xla_flags.parser import json_value
from xla_flags.schema import Catalog, FlagKind, FlagSpec

HELP = "list the flags of a jaxlib with type, default and first release"
EXAMPLES = """\
  xla-flags list                           all of them, which --help of XLA itself does not show
  xla-flags list command_buffer            those with that in their name
  xla-flags list "xla_gpu_*_mode"          those that fit a pattern
  xla-flags list --jaxlib=0.10.2 nvshmem   of another release"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument(
        "pattern", nargs="?", type=flag_text, default="", help="a part of the name, or a pattern with * and ?"
    )
    add_jaxlib_option(parser)
    add_format_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Lists the flags of each jaxlib; finding none is status 1, as grep has it."""
    found = False
    entries = []
    for choice in choose(arguments.jaxlib):
        flags = matching(choice.catalog, arguments.pattern)
        found = found or bool(flags)
        entries += [_entry(flag, choice.catalog) for flag in flags]
        if arguments.format == "text":
            that = f" with {arguments.pattern!r} in their name" if arguments.pattern else ""
            say(f"{choice.title}: {len(flags)} of {len(choice.catalog.flags)} flags{that}")
            if flags:
                rows = [_row(flag) for flag in flags]
                console().print(table(("flag", "takes", "default", "since"), rows))
    if arguments.format == "json":
        print_json(entries)
    return cli.EXIT_OK if found else cli.EXIT_WOULD_FAIL


def matching(catalog: Catalog, pattern: str) -> list[FlagSpec]:
    """The flags whose name has, or fits, the pattern, in the order of names."""
    wanted = pattern.lstrip("-").lower()
    if not any(each in wanted for each in "*?["):
        wanted = f"*{wanted}*"
    return [catalog.flags[name] for name in sorted(catalog.flags) if fnmatch.fnmatchcase(name, wanted)]


def _since(flag: FlagSpec) -> str:
    history = history_of(flag.name)
    if history is None:
        return ""
    return f"≤{history.since}" if history.from_start else history.since


def _takes(flag: FlagSpec) -> str:
    if flag.kind in (FlagKind.WORD, FlagKind.WORD_ANY_CASE):
        return " | ".join(flag.words)
    if flag.kind in (FlagKind.ENUM, FlagKind.ENUM_ANY_CASE) and flag.enum is not None:
        return " | ".join(flag.enum.numbers)
    special = {FlagKind.ENUM_LIST: "names", FlagKind.DURATION: "duration", FlagKind.MAP: "key=value,..."}
    if flag.kind.appends:
        return "list"
    return special.get(flag.kind, flag.type)


def _row(flag: FlagSpec) -> list[str]:
    default = plain(flag.field.default) if flag.field is not None else flag.default
    return [flag.name, _takes(flag), default, _since(flag)]


def _entry(flag: FlagSpec, catalog: Catalog) -> dict[str, Any]:
    history = history_of(flag.name)
    return {
        "flag": flag.name,
        "jaxlib": catalog.version,
        "type": flag.type,
        "kind": str(flag.kind),
        "default": json_value(flag.field.default) if flag.field is not None else None,
        "values": [*flag.words] or ([*flag.enum.numbers] if flag.enum is not None else None),
        "field": flag.field.name if flag.field is not None else None,
        "since": history.since if history is not None else None,
    }
