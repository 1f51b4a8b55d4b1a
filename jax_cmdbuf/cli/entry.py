"""The ``jax-cmdbuf`` command: one module per verb, one place that turns errors into exit codes.

A verb's module has ``NAME``, ``HELP``, ``add_arguments(parser)`` and ``run(arguments) -> int``. Invariant: an
error of this package is one line on stderr and exit status 2, never a traceback; a verb's module is
imported only when it is used or listed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import jax_cmdbuf
from jax_cmdbuf.errors import CmdbufError

__all__ = ["main"]

# In the order in which they are listed; a verb whose module is not there is not offered.
VERBS = ("plan", "run", "replay", "report", "advise", "calibrate", "doctor")

EXIT_MISUSE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Args:
      argv: the arguments after the program's name; None: those of this process.

    Returns:
      The exit status: the verb's own, 2 for misuse or an error of this package, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser(words).parse_args(words)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except CmdbufError as error:
        print(f"jax-cmdbuf: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_MISUSE
    except KeyboardInterrupt:
        print("jax-cmdbuf: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as stopped:  # argparse has printed its line
        return stopped.code if isinstance(stopped.code, int) else EXIT_MISUSE


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jax-cmdbuf",
        description="See, simulate and steer how XLA:GPU records JAX programs into command buffers.",
    )
    parser.add_argument("--version", action="version", version=f"jax-cmdbuf {jax_cmdbuf.__version__}")
    subparsers = parser.add_subparsers(title="verbs", metavar="verb", required=True)
    asked = [word for word in words if word in VERBS][:1]
    for verb in asked or VERBS:
        module = _verb(verb)
        if module is None:
            continue
        subparser = subparsers.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def _verb(name: str) -> ModuleType | None:
    dotted = f"jax_cmdbuf.cli.{name}"
    return importlib.import_module(dotted) if importlib.util.find_spec(dotted) else None
