"""`xla-flags diff A B`: what differs in effect between two sets of flags, or between two releases.

Invariant: flags are compared by what they do, not by how they are written.
"""

from __future__ import annotations

import argparse
from typing import Any

from xla_flags import cli
from xla_flags.cli.choice import Choice, add_jaxlib_option, choose
from xla_flags.cli.effects import plain
from xla_flags.cli.output import console, print_json, say, table
from xla_flags.cli.words import Misuse, add_format_option, flag_text
from xla_flags.errors import UnknownJaxlibError
from xla_flags.parser import ParseResult, json_value, parse
from xla_flags.schema import Catalog, FieldSpec

HELP = "compare two sets of flags by their effect, or the flags of two releases"
EXAMPLES = """\
  xla-flags diff "--xla_gpu_autotune_level=2" "--xla_gpu_autotune_level=3 --xla_dump_to=/tmp/x"
  xla-flags diff base.txt tuned.txt       two files of flags
  xla-flags diff 0.10.2 0.12.0.1          two releases: flags gone, flags new, other defaults and values
  xla-flags diff "" "$XLA_FLAGS"          the defaults and what is set here

exit status: 0 no difference, 1 a difference or flags that would fail, 2 misuse"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    for side in ("A", "B"):
        parser.add_argument(
            side.lower(),
            type=flag_text,
            metavar=side,
            help="flags, a file of flags, or a release (`installed`: the one here)",
        )
    add_jaxlib_option(parser)
    add_format_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the differences."""
    releases = _releases(arguments.a, arguments.b)
    if releases is not None:
        return _diff_releases(*releases, arguments.format)
    choices = choose(arguments.jaxlib)
    if len(choices) > 1:
        raise Misuse("diff compares two sets of flags with one --jaxlib")
    catalog = choices[0].catalog
    one, other = (parse(text, catalog) for text in (arguments.a, arguments.b))
    for name, result in (("A", one), ("B", other)):
        if not result.ok:
            say(f"{name} would end the process: {result.message}")
    if not (one.ok and other.ok):
        return cli.EXIT_WOULD_FAIL
    rows = difference(one, other)
    if arguments.format == "json":
        print_json({"jaxlib": catalog.version, "differences": rows})
    elif not rows:
        say(f"{choices[0].title}: no difference in effect")
    else:
        say(choices[0].title)
        shown = [[each["field"], plain(each["a"]), plain(each["b"]), plain(each["default"])] for each in rows]
        console().print(table(("option", "A", "B", "default"), shown))
    return cli.EXIT_WOULD_FAIL if rows else cli.EXIT_OK


def difference(one: ParseResult, other: ParseResult) -> list[dict[str, Any]]:
    """The fields that differ: `field`, `a`, `b`, `default`, in the order of names."""
    fields = one.catalog.fields
    rows = []
    for name in sorted({*one.plain, *other.plain}):
        default = fields[name].default
        a, b = one.plain.get(name, default), other.plain.get(name, default)
        if a != b:
            rows.append(
                {"field": name, "a": json_value(a), "b": json_value(b), "default": json_value(default)}
            )
    return rows


def _releases(a: str, b: str) -> tuple[Choice, Choice] | None:
    """The two releases, if that is what both are."""
    if not all(each[:1].isdigit() or each == "installed" for each in (a, b)):
        return None
    try:
        return choose([a])[0], choose([b])[0]
    except UnknownJaxlibError as error:
        raise Misuse(str(error)) from None


def _diff_releases(one: Choice, other: Choice, form: str) -> int:
    a, b = one.catalog, other.catalog
    gone, new = sorted(a.flags.keys() - b.flags.keys()), sorted(b.flags.keys() - a.flags.keys())
    changes = _changes(a, b)
    if form == "json":
        versions = {"a": a.version, "b": b.version}
        print_json({**versions, "gone": gone, "new": new, "changed": changes})
    else:
        for title, names in ((f"gone in {b.version}", gone), (f"new in {b.version}", new)):
            say(f"{len(names)} flags {title}" + (":" if names else ""))
            for name in names:
                say(f"  {name}")
        say(f"{len(changes)} changes of flags that both have" + (":" if changes else ""))
        shown = [[each["flag"], each["what"], each["a"], each["b"]] for each in changes]
        if shown:
            console().print(table(("flag", "", a.version, b.version), shown))
    return cli.EXIT_WOULD_FAIL if gone or new or changes else cli.EXIT_OK


def _changes(a: Catalog, b: Catalog) -> list[dict[str, str]]:
    rows = []
    for name in sorted(a.flags.keys() & b.flags.keys()):
        one, other = a.flags[name], b.flags[name]
        before, after = _default(one.field), _default(other.field)
        if before != after:
            rows.append({"flag": name, "what": "default", "a": before, "b": after})
        if one.enum is not None and other.enum is not None:
            lost = [each for each in one.enum.numbers if each not in other.enum.numbers]
            added = [each for each in other.enum.numbers if each not in one.enum.numbers]
            if lost or added:
                rows.append({"flag": name, "what": "values", "a": plain(lost), "b": plain(added)})
        if one.kind is not other.kind:
            rows.append({"flag": name, "what": "reads", "a": str(one.kind), "b": str(other.kind)})
    return rows


def _default(field: FieldSpec | None) -> str:
    return plain(field.default) if field is not None else "-"
