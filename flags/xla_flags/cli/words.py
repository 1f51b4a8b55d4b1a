"""The command's arguments, where flags of XLA stand among options of this command.

Invariant: argparse never sees a flag of XLA as an option; a word is our option only if it is named here.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Sequence

from xla_flags.cli.choice import add_jaxlib_option
from xla_flags.merge import VARIABLE

OPTIONS = (
    "--changed",
    "--compiler-options",
    "--fix",
    "--format",
    "--help",
    "--jaxlib",
    "--jaxlib-from-env",
    "--lines",
)
"""All options of all verbs."""

_MARK = "\0"
"""Put before words that are no options; no argument of a process can hold it."""


class Misuse(Exception):  # noqa: N818 - what the person did, not what went wrong here
    """The command was used in a way it does not work; its text is one sentence."""


def protect(words: Sequence[str]) -> list[str]:
    """The words, with those that are flags or come after `--` marked, so that argparse leaves them alone.

    Raises:
      Misuse: a word looks like a misspelt option of ours.
    """
    result: list[str] = []
    for index, word in enumerate(words):
        if word == "--":
            return [*result, *(_MARK + each for each in words[index + 1 :])]
        name = word.partition("=")[0]
        if not word.startswith("-") or name in OPTIONS or word in ("-h", "-"):
            result.append(word)
            continue
        near = difflib.get_close_matches(name, OPTIONS, 1, 0.75)
        if near and not name.lstrip("-").startswith("xla_") and " " not in word:
            raise Misuse(f"there is no option {name}; did you mean {near[0]}? (flags can follow `--`)")
        result.append(_MARK + word)
    return result


def flag_text(word: str) -> str:
    """A positional argument as it was typed."""
    return word.removeprefix(_MARK)


def add_flags_arguments(parser: argparse.ArgumentParser, what: str = "flags") -> None:
    """Adds the flags to look at, and the jaxlib to look with."""
    parser.add_argument(
        "flags",
        nargs="*",
        type=flag_text,
        metavar="FLAGS",
        help=f"{what}, in one argument or several, or the name of a file with flags; "
        f"without any: the value of {VARIABLE} in the environment",
    )
    add_jaxlib_option(parser)
    add_format_option(parser)


def add_format_option(parser: argparse.ArgumentParser, default: str = "text") -> None:
    """Adds `--format`."""
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default=default,
        help=f"for people or for programs (default: {default})",
    )


def value_of(flags: Sequence[str]) -> str | None:
    """The value of `XLA_FLAGS` that the arguments stand for; None: there are none, and it is not set.

    Several arguments are one value, as if the shell had not cut them apart.
    """
    if flags:
        return " ".join(flags)
    return os.environ.get(VARIABLE)


def where_from(flags: Sequence[str]) -> str:
    """What `value_of` looked at, in words."""
    if flags:
        return "the flags given"
    return (
        VARIABLE
        if os.environ.get(VARIABLE)
        else f"{VARIABLE}, which is {'empty' if VARIABLE in os.environ else 'not set'}"
    )
