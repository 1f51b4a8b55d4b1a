"""``jax-cmdbuf run``: a script runs as under ``python``, and afterwards it is told what its functions did.

Invariant: the script's standard output is its own until it has ended; its exit status is ours, unless what we
were asked to write cannot be written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jax_cmdbuf.cli.report import add_output_arguments, run_output, write_run
from jax_cmdbuf.errors import InputError

if TYPE_CHECKING:
    from jax_cmdbuf.api.run_session import RunSession
    from jax_cmdbuf.cli.script import Script, ScriptEnd
    from jax_cmdbuf.report.run_model import RunReport

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "run"
HELP = "run a script and report which buffers kept their addresses, which did not, and what to change"

_EXAMPLES = """\
examples:
  jax-cmdbuf run --all train.py --steps=20
      run train.py; observe every function that it, or a library, jits; print the report at the end
  jax-cmdbuf run --update-mode=SKIP_PROFILED --target=h100 -m mypackage.train
      run a module; functions decorated with jax_cmdbuf.command_buffer behave as on an H100
  jax-cmdbuf run --all --report=run.html --trace=run.json train.py
      also draw allocations by executions; run.json opens in ui.perfetto.dev
  jax-cmdbuf run --all --format=json --output=run.json train.py
      the report as data, for `jax-cmdbuf report` and other programs

Options of run come before the script; what follows the script is the script's. Nothing in the script needs to
change. On a CPU the values are computed there and the GPU's side is simulated; on a GPU XLA runs everything.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.usage = "jax-cmdbuf run [options] (script.py | -m module) [arguments of the script]"
    parser.add_argument("script", nargs="?", help="file, or folder or archive with a __main__.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")
    what = parser.add_argument_group("what to run and observe")
    what.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module, as python -m does",
    )
    what.add_argument(
        "--all",
        action="store_true",
        help="observe every jax.jit, also those in libraries (default: functions decorated with "
        "jax_cmdbuf.command_buffer)",
    )
    how = parser.add_argument_group("what decorated functions do where they do not say it themselves")
    how.add_argument(
        "--update-mode",
        metavar="MODE",
        help="ALWAYS_UPDATE, SKIP_TEMP or SKIP_PROFILED (default: as XLA_FLAGS says, else ALWAYS_UPDATE)",
    )
    how.add_argument(
        "--target",
        metavar="GPU",
        help="GPU to simulate, such as h200 (default); see `jax-cmdbuf plan --help`",
    )
    how.add_argument(
        "--runtime",
        metavar="NAME",
        help="xla, simulated, ... as runtime= of the decorator (default: XLA on a GPU, else simulated)",
    )
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs the script and writes what was asked for."""
    from jax_cmdbuf.cli.after_import import after_import
    from jax_cmdbuf.cli.run_progress import run_progress
    from jax_cmdbuf.cli.script import run_script

    script, output = _script(arguments), run_output(arguments)
    script.check()
    recording = _Recording(arguments.all)
    with (
        _environment(_settings(arguments)),
        after_import("jax", recording.begin),
        run_progress(script.name, recording.progress),
    ):
        end = run_script(script)
    sys.stdout.flush()
    write_run(recording.end(script, end), output)
    return end.status


def _script(arguments: argparse.Namespace) -> Script:
    from jax_cmdbuf.cli.script import Script

    if arguments.module is not None:
        if not arguments.module:
            raise InputError("-m needs the name of a module")
        if arguments.script is not None:
            raise InputError(f"give the script {arguments.script} or a module after -m, not both")
        return Script(arguments.module[0], True, tuple(arguments.module[1:]))
    if arguments.script is None:
        raise InputError("give a script, or a module after -m; `jax-cmdbuf run --help` has examples")
    return Script(arguments.script, False, tuple(arguments.arguments))


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Variables for the script, where child processes see them too."""
    from jax_cmdbuf.api import defaults

    found = {}
    if arguments.update_mode is not None:
        mode = str(defaults.update_mode_named(arguments.update_mode, "--update-mode"))
        found[defaults.UPDATE_MODE] = mode
        if mode != "ALWAYS_UPDATE" and "XLA_PYTHON_CLIENT_ALLOCATOR" not in os.environ:
            # XLA on a GPU remaps nothing without it; anywhere else nobody reads it.
            found["XLA_PYTHON_CLIENT_ALLOCATOR"] = "vmm"
    if arguments.target is not None:
        defaults.check_target(arguments.target)
        found[defaults.TARGET] = arguments.target
    if arguments.runtime is not None:
        found[defaults.RUNTIME] = defaults.runtime_named(arguments.runtime, "--runtime")
    return found


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Recording:
    """The session, which begins when the script imports JAX."""

    def __init__(self, observe_all: bool) -> None:
        self._observe_all = observe_all
        self._session: RunSession | None = None

    def begin(self) -> None:
        from jax_cmdbuf.api.run_session import RunSession

        self._session = RunSession(self._observe_all)

    def progress(self) -> str:
        return self._session.progress() if self._session is not None else "JAX is not imported yet"

    def end(self, script: Script, end: ScriptEnd) -> RunReport:
        from jax_cmdbuf.api.run_ending import Ending, report_without_jax

        ending = Ending(script.command, end.outcome, end.detail, end.status, end.began_us, end.took_us)
        return self._session.end(ending) if self._session is not None else report_without_jax(ending)
