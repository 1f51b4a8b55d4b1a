"""`xla-flags explain`: what there is to know about flags.

Invariant: a flag that no recorded release knows is misuse, one that this jaxlib lacks is an answer.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.text import Text

from xla_flags import cli
from xla_flags.cache_key import in_cache_key
from xla_flags.cli.choice import Choice, choose
from xla_flags.cli.effects import cut, plain
from xla_flags.cli.output import console, print_json, print_remark, say, table
from xla_flags.cli.words import Misuse, add_flags_arguments, value_of, where_from
from xla_flags.history import history_of, recorded_names
from xla_flags.nearest import nearest
from xla_flags.parser import ParseResult, json_value, parse
from xla_flags.schema import FlagKind, FlagSpec

HELP = "say what a flag takes, its default, its value here, and which releases know it"
EXAMPLES = """\
  xla-flags explain xla_gpu_command_buffer_update_mode     by name
  xla-flags explain "--xla_gpu_enable_command_buffer=+WHILE"  with the value it would have
  xla-flags explain --jaxlib=0.10.2 xla_gpu_graph_level    a flag of other releases
  xla-flags explain                                        the flags in XLA_FLAGS"""

_READS = {
    FlagKind.BOOL: "true or false in any case, 1 or 0; alone it means true",
    FlagKind.INT32: "a decimal integer of 32 bits",
    FlagKind.INT64: "a decimal integer of 64 bits",
    FlagKind.FLOAT: "a number",
    FlagKind.STRING: "any text",
    FlagKind.UPPER_STRING: "any text; letters become capitals",
    FlagKind.ENUM: "one of these names, exactly",
    FlagKind.ENUM_ANY_CASE: "one of these names, in any case",
    FlagKind.WORD: "one of these words, in lower case",
    FlagKind.WORD_ANY_CASE: "one of these words, in any case",
    FlagKind.ENUM_LIST: "names between commas, replacing the list; each with + or - to edit it",
    FlagKind.ASYNC_COLLECTIVES: "names between commas, without blanks or signs, replacing the list",
    FlagKind.PASS_LIST: "passes between commas, each pass, pass:occurrence or @id; added to the list",
    FlagKind.COMMA_LIST: "entries between commas; added to the list",
    FlagKind.TRIMMED_LIST: "entries between commas; added to the list",
    FlagKind.BLANK_LIST: "words between blanks, so in quotes; added to the list",
    FlagKind.WHOLE_LIST: "one entry, commas and all; added to the list",
    FlagKind.MAP: "key=value between commas; added to the map",
    FlagKind.COLLECTIVE_FILTERS: "op, op:max_bytes or op:max_bytes:type between commas; added to the list",
    FlagKind.THUNK_ID_RANGES: "n, first:last, first: or :last between commas; added to the list",
    FlagKind.ANNOTATION_REGEXES: "regular expressions between commas; added to the list",
    FlagKind.DURATION: "a duration such as 1m30s",
    FlagKind.FUEL: "PASS=INTEGER between commas",
    FlagKind.NO_EFFECT: "true or false, and has no effect",
    FlagKind.DEPRECATED: "true or false, and has no effect but a warning",
    FlagKind.FALSE_ONLY: "false; true is refused",
    FlagKind.BOOL_AS_WORD: "true or false in any case, 1 or 0; alone it means true",
    FlagKind.BOOL_AS_MEMBER: "true adds a member to a list, false removes it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    add_flags_arguments(parser, "names of flags, or flags")


def run(arguments: argparse.Namespace) -> int:
    """Explains the flags with each jaxlib."""
    words = arguments.flags
    text, names = _as_flags(words)
    entries = []
    for choice in choose(arguments.jaxlib):
        result = parse(text, choice.catalog, files=None)
        found = _names(result, names)
        if not found and not words and arguments.format == "text":
            say(f"there is nothing to explain in {where_from(words)}")
        for name in found:
            entry = explain(name, result)
            entries.append(entry)
            if arguments.format == "text":
                _print(choice, entry, result)
    if arguments.format == "json":
        print_json(entries)
    return cli.EXIT_OK


def _as_flags(words: list[str]) -> tuple[str | None, list[str]]:
    """(text of flags, names) of what was given: names may come with or without dashes and values."""
    if not words or any(" " in word or not word.lstrip("-").startswith("xla_") for word in words):
        return value_of(words), []
    given = [word for word in words if "=" in word and word.startswith("--")]
    names = [word.lstrip("-").partition("=")[0] for word in words]
    return " ".join(given) or None, names


def _names(result: ParseResult, names: list[str]) -> list[str]:
    if names:
        return list(dict.fromkeys(names))
    if not result.source.openable:
        raise Misuse(
            f"{result.source.file!r} is neither the name of a flag, nor flags, nor a file with flags"
        )
    return list(dict.fromkeys(token.name for token in result.tokens if token.name))


def explain(name: str, result: ParseResult) -> dict[str, Any]:
    """All there is to know about a flag, in JSON's form.

    Raises:
      Misuse: neither this jaxlib nor any recorded one has such a flag.
    """
    flag, history = result.catalog.flags.get(name), history_of(name)
    if flag is None and history is None:
        near = nearest(name, {*result.catalog.flags, *recorded_names()})
        also = f"; similar: {', '.join(each for _, each in near)}" if near else ""
        raise Misuse(f"no jaxlib on record has a flag {name}{also}")
    entry: dict[str, Any] = {
        "flag": name,
        "jaxlib": result.catalog.version,
        "known": flag is not None,
        "since": history.since if history is not None else None,
        "since_or_earlier": history.from_start if history is not None else False,
        "until": history.until if history is not None and not history.current else None,
    }
    return entry if flag is None else {**entry, **_facts(flag, result)}


def _facts(flag: FlagSpec, result: ParseResult) -> dict[str, Any]:
    field = flag.field
    value = result.plain.get(field.name, field.default) if field is not None else None
    return {
        "type": flag.type,
        "reads": _READS[flag.kind] + (f", at least {flag.minimum}" if flag.minimum is not None else ""),
        "values": _values(flag),
        "field": field.name if field is not None else None,
        "default": json_value(field.default) if field is not None else None,
        "value": json_value(value),
        "overruled": field.forced if field is not None else False,
        "in_cache_key": in_cache_key(flag.name, result.catalog.version),
        "presumed": flag.presumed,
    }


def _values(flag: FlagSpec) -> list[str] | None:
    if flag.kind in (FlagKind.WORD, FlagKind.WORD_ANY_CASE):
        return [*flag.words]
    if flag.enum is None or flag.kind in (FlagKind.BOOL_AS_WORD, FlagKind.BOOL_AS_MEMBER):
        return None
    return [name.removeprefix(flag.prefix) for name in flag.enum.numbers]


def _print(choice: Choice, entry: dict[str, Any], result: ParseResult) -> None:
    console().print(Text.assemble((entry["flag"], "bold"), f"  {choice.title}"), soft_wrap=True)
    if not entry["known"]:
        say("  no flag of this release")
        _print_history(entry)
        for remark in parse(f"--{entry['flag']}", result.catalog, files={}).diagnostics[:1]:
            print_remark(remark, "", "  ")
        say()
        return
    values = f": {', '.join(entry['values'])}" if entry["values"] else ""
    rows = [
        ["  takes", f"{entry['type']}: {entry['reads']}{values}"],
        ["  default", plain(entry["default"])],
    ]
    if entry["value"] != entry["default"]:
        rows.append(["  here", cut(plain(entry["value"]))])
    if entry["field"] is None:
        rows.append(["  writes", "no field of DebugOptions"])
    elif entry["field"] != entry["flag"]:
        rows.append(["  writes", f"{entry['field']}, which is its name in compiler_options"])
    if entry["overruled"]:
        rows.append(["  but", "jaxlib overrules it; compiler_options can set it"])
    rows.append(["  cache", "changes" if entry["in_cache_key"] else "does not change"])
    rows[-1][1] += " the key of JAX's compilation cache"
    console().print(table(("", ""), rows))
    _print_history(entry)
    say()


def _print_history(entry: dict[str, Any]) -> None:
    history = history_of(entry["flag"])
    if history is not None:
        say(f"  known to {history.span}")
