"""``jax-cmdbuf report``: reports of runs, read again, and those of several processes merged into one."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jax_cmdbuf.cli.output import print_rich, write_output
from jax_cmdbuf.errors import InputError

if TYPE_CHECKING:
    from jax_cmdbuf.report.run_model import RunReport

__all__ = [
    "HELP",
    "NAME",
    "RunOutput",
    "add_arguments",
    "add_output_arguments",
    "run",
    "run_output",
    "write_run",
]

NAME = "report"
HELP = "show reports that `jax-cmdbuf run` has written, and merge those of several processes"

_EXAMPLES = """\
examples:
  jax-cmdbuf report run.json
      print the report of a run that was written with --format=json --output=run.json
  jax-cmdbuf report run.process*.json --report=run.html --trace=trace.json
      merge the reports of all processes of one run; draw them; write a trace for ui.perfetto.dev
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="a report, as JSON")
    add_output_arguments(parser)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares where a report goes, and in which forms."""
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    group.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="write there instead of to stdout; of several processes each puts its number into the name",
    )
    group.add_argument("--report", metavar="FILE", help="also write an HTML page: allocations by executions")
    group.add_argument("--trace", metavar="FILE", help="also write a trace that opens in ui.perfetto.dev")
    group.add_argument("--full", action="store_true", help="text: show every allocation and execution")


@dataclass(frozen=True, slots=True)
class RunOutput:
    """Where a report goes; None: nowhere, or for ``output`` stdout."""

    format: str
    output: str | None
    html: str | None
    trace: str | None
    is_full: bool


def run_output(arguments: argparse.Namespace) -> RunOutput:
    """What the arguments ask for.

    Raises:
      InputError: a file's folder is not there or cannot be written, so that a long run would be in vain.
    """
    output = RunOutput(
        arguments.format, arguments.output, arguments.report, arguments.trace, bool(arguments.full)
    )
    for name in (output.output, output.html, output.trace):
        folder = Path(name).parent if name else Path()
        if name and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise InputError(f"cannot write {name}: {folder} is no folder that can be written to")
    return output


def run(arguments: argparse.Namespace) -> int:
    """Reads, merges and shows."""
    from jax_cmdbuf.report.run_json import load_run
    from jax_cmdbuf.report.run_merge import merge_runs

    output = run_output(arguments)
    reports = [load_run(name) for name in arguments.files]
    write_run(merge_runs(reports, arguments.files), output)
    return 0


def write_run(report: RunReport, output: RunOutput) -> None:
    """Writes a report in every form that was asked for.

    Raises:
      InputError: a file cannot be written.
    """
    from jax_cmdbuf.report.html_run import run_as_html
    from jax_cmdbuf.report.run_json import run_as_json
    from jax_cmdbuf.report.run_trace import run_as_trace
    from jax_cmdbuf.report.terminal_run import RunDetail, print_run

    if output.html is not None:
        write_output(run_as_html(report), _name(output.html, report))
    if output.trace is not None:
        write_output(run_as_trace(report), _name(output.trace, report))
    name = _name(output.output, report) if output.output is not None else None
    if output.format == "json":
        write_output(run_as_json(report), name)
        return
    detail = RunDetail.full() if output.is_full else RunDetail()
    print_rich(lambda console: print_run(report, console, detail), name)


def _name(name: str, report: RunReport) -> str:
    """The file's name; with the process's number, if the report is of one process among several."""
    process = report.processes[0]
    if len(report.processes) > 1 or process.count == 1:
        return name
    path = Path(name)
    return str(path.with_name(f"{path.stem}.process{process.index}{path.suffix}"))
