"""``jax-cmdbuf calibrate``: what driver, graphs, copies and XLA's updates cost on this machine's GPU."""

from __future__ import annotations

import argparse
import json

from jax_cmdbuf.cli.output import print_rich, progress, write_output

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "calibrate"
HELP = "measure what address changes cost on this machine's GPU, in under a minute"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--output", "-o", metavar="FILE", help="write the calibration there as JSON, too")


def run(arguments: argparse.Namespace) -> int:
    """Measures and shows."""
    from jax_cmdbuf.api.calibrate import calibrate
    from jax_cmdbuf.report.terminal_calibration import print_calibration

    with progress("measuring") as tell:
        calibration = calibrate(tell)
    text = json.dumps(calibration.to_json(), indent=1) + "\n"
    if arguments.output is not None:
        write_output(text, arguments.output)
    if arguments.format == "json":
        write_output(text, None)
    else:
        print_rich(lambda console: print_calibration(calibration, console), None)
    return 0
