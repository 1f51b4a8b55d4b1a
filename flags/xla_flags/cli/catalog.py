"""`xla-flags catalog`: a table of all flags and fields, in the form in which this package ships it.

Invariant: what is printed can be read back with `Catalog.from_json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import resources
from typing import Any

from xla_flags import cli
from xla_flags.cli.choice import Choice, add_jaxlib_option, choose
from xla_flags.cli.output import print_json, say
from xla_flags.cli.words import Misuse, add_format_option
from xla_flags.generate import catalog_text
from xla_flags.installed import derive, installed_library, installed_version
from xla_flags.schema import shipped_versions

HELP = "print the table of flags of a release, or make it anew from the installed jaxlib"
EXAMPLES = """\
  xla-flags catalog                                  which releases have a table
  xla-flags catalog --jaxlib=0.12.0.1 --format=json  the shipped table
  xla-flags catalog --jaxlib-from-env                ask the installed jaxlib itself, in 20 seconds"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    add_jaxlib_option(parser)
    parser.add_argument(
        "--jaxlib-from-env",
        action="store_true",
        help="make the table of the installed jaxlib by asking it, and print that",
    )
    add_format_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints a table, or which there are."""
    if arguments.jaxlib_from_env:
        if arguments.jaxlib:
            raise Misuse("--jaxlib-from-env asks the installed jaxlib; leave --jaxlib out")
        from xla_flags.observe import observe_installed

        sys.stdout.write(catalog_text(observe_installed()))
        return cli.EXIT_OK
    if arguments.format == "json":
        choices = choose(arguments.jaxlib)
        if len(choices) > 1:
            raise Misuse("catalog prints the table of one --jaxlib")
        print_json(_table(choices[0]))
        return cli.EXIT_OK
    if not arguments.jaxlib:
        say(f"tables are shipped for jaxlib {', '.join(shipped_versions())}")
    for choice in choose(arguments.jaxlib):
        catalog = choice.catalog
        exact = "as observed" if catalog.exact else "presumed from its library and the nearest release"
        say(f"{choice.title}: {len(catalog.flags)} flags, {len(catalog.fields)} options, {exact}")
    return cli.EXIT_OK


def _table(choice: Choice) -> dict[str, Any]:
    version = choice.catalog.version
    if version in shipped_versions():
        file = resources.files("xla_flags").joinpath("data", f"catalog-{version}.json")
        shipped: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return shipped
    return derive(installed_version(), installed_library())
