"""`xla-flags parse`: the verdict alone, for programs.

Invariant: one JSON object per jaxlib, with `jaxlib`, `outcome`, `message` and `changed`, no more.
"""

from __future__ import annotations

import argparse
from typing import Any

from xla_flags import cli
from xla_flags.cli.choice import add_jaxlib_option, choose
from xla_flags.cli.output import print_json_line, say
from xla_flags.cli.words import add_format_option, flag_text, value_of
from xla_flags.parser import ParseResult, parse

HELP = "print the verdict of a jaxlib on flags, as JSON"
EXAMPLES = """\
  xla-flags parse --format=json -- "--xla_gpu_autotune_level=2"
  xla-flags parse --jaxlib=0.10.2 -- "--xla_gpu_graph_level=0"

`changed` has the DebugOptions fields that differ from the default: enum members by name, repeated fields as
lists, maps and messages as objects, numbers that JSON has not as "inf", "-inf" and "nan". It is null, and
`message` is what jaxlib would print, unless `outcome` is "ok". Several jaxlibs give a line each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("flags", nargs="*", type=flag_text, metavar="FLAGS", help="as for `check`")
    add_jaxlib_option(parser)
    add_format_option(parser, "json")


def run(arguments: argparse.Namespace) -> int:
    """Prints one verdict for each jaxlib."""
    status = cli.EXIT_OK
    for choice in choose(arguments.jaxlib):
        result = parse(value_of(arguments.flags), choice.catalog)
        if arguments.format == "json":
            print_json_line(verdict(result))
        else:
            say(f"{choice.title}: {result.outcome}" + (f": {result.message}" if result.message else ""))
            for name, value in (result.changed or {}).items():
                say(f"  {name} = {value!r}")
        status = status if result.ok else cli.EXIT_WOULD_FAIL
    return status


def verdict(result: ParseResult) -> dict[str, Any]:
    """The JSON contract."""
    return {
        "jaxlib": result.catalog.version,
        "outcome": str(result.outcome),
        "message": result.message,
        "changed": result.changed,
    }
