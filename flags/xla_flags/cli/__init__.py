"""The `xla-flags` command: one module per verb, one place that turns errors into exit codes.

A verb's module has `HELP`, `EXAMPLES`, `add_arguments(parser)` and `run(arguments) -> int`. Invariant: an
error of this package is one sentence on stderr and exit status 2, never a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from xla_flags.cli.words import Misuse, protect
from xla_flags.errors import XlaFlagsError
from xla_flags.rendering import printable

__all__ = ["EXIT_MISUSE", "EXIT_OK", "EXIT_WOULD_FAIL", "VERBS", "main"]

EXIT_OK = 0
EXIT_WOULD_FAIL = 1
"""A jaxlib that was asked about would end the process, or refuse to compile."""
EXIT_MISUSE = 2
_EXIT_INTERRUPTED = 130

# `list` and `format` as modules would hide the builtins of these names here.
VERBS = {
    "check": "check",
    "explain": "explain",
    "list": "listing",
    "diff": "diff",
    "format": "formatting",
    "parse": "parse",
    "catalog": "catalog",
}
"""Verb -> its module in this package, in the order in which they are listed."""

_EPILOG = """\
examples:
  xla-flags check                                          what is in XLA_FLAGS here and now
  xla-flags check "--xla_gpu_graph_level=0"                these flags instead
  xla-flags check --jaxlib=0.10.2 --jaxlib=0.12 flags.txt  a file of flags, two releases of jaxlib
  xla-flags explain xla_gpu_command_buffer_update_mode     what a flag takes, since when
  xla-flags list command_buffer                            flags with that in their name

exit status: 0 fine, 1 the flags would fail, 2 misuse of this command
`xla-flags VERB --help` has more examples."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Args:
      argv: the arguments after the program's name; None: those of this process.

    Returns:
      The exit status: 0, 1 if flags would fail, 2 for misuse, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser(words).parse_args(protect(words))
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except (XlaFlagsError, Misuse) as error:
        print(f"xla-flags: {' '.join(printable(str(error)).split())}", file=sys.stderr)
        return EXIT_MISUSE
    except KeyboardInterrupt:
        print("xla-flags: interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except SystemExit as stopped:  # argparse has printed its text
        return stopped.code if isinstance(stopped.code, int) else EXIT_MISUSE


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage text."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise Misuse(f"{message}; see `{self.prog} --help`")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="xla-flags",
        description="Says what a jaxlib does with XLA_FLAGS, without starting it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=_Parser)
    # Only the verb that is asked for is loaded, unless all are to be listed.
    asked = [word for word in words[:1] if word in VERBS]
    for name in asked or VERBS:
        module = _verb(name)
        verb = verbs.add_parser(
            name,
            help=module.HELP,
            description=module.HELP[:1].upper() + module.HELP[1:] + ".",
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser


def _verb(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{VERBS[name]}")
