"""``jax-cmdbuf advise``: which update mode is forecast to be fastest for a program, and by how much."""

from __future__ import annotations

import argparse

from jax_cmdbuf.cli.plan import add_source_arguments, plan_options

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "advise"
HELP = "forecast a program's host time per step under each update mode, and say which to use"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    add_source_arguments(parser)
    group = parser.add_argument_group("what the caller does")
    group.add_argument(
        "--moving",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="this argument is another array in each call, as a batch: its name, or a part of it such as "
        "state.params; repeatable (default: arguments stay, or are donated and come back)",
    )
    group.add_argument(
        "--results",
        choices=("kept", "dropped"),
        default="kept",
        help="kept (default): a call's results live until the next call has returned; dropped: they do not",
    )
    group.add_argument(
        "--calibration", metavar="FILE", help="costs from jax-cmdbuf calibrate (default: those of an H200)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    output.add_argument("--output", "-o", metavar="FILE", help="write there instead of to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Forecasts and shows."""
    from jax_cmdbuf.api.advisor import advise_plan
    from jax_cmdbuf.api.plan import plan_source
    from jax_cmdbuf.cli.output import print_rich, progress, write_output
    from jax_cmdbuf.report.terminal_advice import advice_as_json, print_advice

    with progress(f"planning {arguments.source}"):
        plan = plan_source(arguments.source, plan_options(arguments))
        keeps = arguments.results == "kept"
        advice = advise_plan(plan, tuple(arguments.moving), keeps, arguments.calibration)
    if arguments.format == "json":
        write_output(advice_as_json(plan, advice), arguments.output)
    else:
        print_rich(lambda console: print_advice(plan, advice, console), arguments.output)
    return 0
