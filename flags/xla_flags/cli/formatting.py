"""`xla-flags format`: flags in their canonical form.

Invariant: the text that is printed has the verdict and the values of the one that was given.
"""

from __future__ import annotations

import argparse

from xla_flags import cli
from xla_flags.cli.choice import choose
from xla_flags.cli.output import complain, print_json, say
from xla_flags.cli.words import Misuse, add_flags_arguments, value_of
from xla_flags.merge import Flags
from xla_flags.spelling import token_text

HELP = "print flags in canonical form: each value spelt one way, nothing that a later flag replaces"
EXAMPLES = """\
  xla-flags format "--xla_gpu_triton_gemm_any --xla_gpu_autotune_level='02'"
  xla-flags format --lines flags.txt > tidy.txt    one flag a line; XLA_FLAGS=./tidy.txt reads it"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    add_flags_arguments(parser)
    parser.add_argument("--lines", action="store_true", help="one flag a line, as a file may hold them")


def run(arguments: argparse.Namespace) -> int:
    """Prints the canonical text; flags that would fail are printed too, with status 1."""
    choices = choose(arguments.jaxlib)
    if len(choices) > 1:
        raise Misuse("format takes one --jaxlib: the canonical form can differ from one to the next")
    flags = Flags.parse(value_of(arguments.flags), choices[0].catalog)
    result = flags.check()
    if arguments.format == "json":
        replaced = [token_text(each.text) for each in flags.replaced]
        outcome = str(result.outcome)
        print_json(
            {"jaxlib": flags.catalog.version, "outcome": outcome, "text": flags.text, "replaced": replaced}
        )
    elif arguments.lines:
        for each in flags.texts:
            say(each)
    else:
        say(flags.text)
    if not result.ok:
        complain(f"{choices[0].title} would end the process: {result.message}")
    return cli.EXIT_OK if result.ok else cli.EXIT_WOULD_FAIL
