"""``jax-cmdbuf plan``: what XLA compiled, and what each update mode would do with it.

Invariant: everything is worked out before the first byte of output, so an error never leaves half a report.
"""

from __future__ import annotations

import argparse

from jax_cmdbuf.cli.output import write_output

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "plan"
HELP = "show the command buffers and allocations of a compiled program, for a GPU that need not be there"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument(
        "source",
        help="file.py:function (its arguments come from <function>_args beside it, or from --arg), a "
        "serialized executable, HLO text or StableHLO text",
    )
    parser.add_argument(
        "--target",
        help="GPU to compile for: a100, h100, h200 (default), b200, l4, l40s, a10g, t4, "
        "rtx4090, rtx5090, or a GpuTargetConfigProto text file",
    )
    parser.add_argument(
        "--arg",
        dest="shapes",
        action="append",
        default=[],
        metavar="SHAPE",
        help="XLA shape of the next positional argument, such as f32[128,256]; repeatable",
    )
    parser.add_argument("--devices", type=int, metavar="N", help="compile for a mesh of N GPUs, axis 'data'")
    parser.add_argument(
        "--shard",
        action="append",
        metavar="ARGUMENT",
        help="split this argument over the devices by its leading axis (default: every argument "
        "after the first that looks like a batch); repeatable, 'none' for nothing",
    )
    parser.add_argument(
        "--xla_flags",
        "--xla-flags",
        metavar="FLAGS",
        help="XLA_FLAGS of the compilation (default: the environment's)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="give a compilation up after this time (default 600)",
    )
    parser.add_argument("--format", choices=("text", "json", "html"), default="text")
    parser.add_argument("--output", "-o", metavar="FILE", help="write there instead of to the terminal")
    parser.add_argument("--full", action="store_true", help="show every command and allocation in the text")


def run(arguments: argparse.Namespace) -> int:
    """Makes the plan and shows it."""
    from jax_cmdbuf.api.plan import PlanOptions, plan_source
    from jax_cmdbuf.cli.output import progress

    options = PlanOptions(
        arguments.target,
        arguments.devices,
        None if arguments.shard is None else tuple(name for name in arguments.shard if name != "none"),
        tuple(arguments.shapes),
        arguments.xla_flags,
        arguments.timeout,
    )
    with progress(f"planning {arguments.source}"):
        plan = plan_source(arguments.source, options)
    if arguments.format == "json":
        from jax_cmdbuf.report.json_plan import plan_as_json

        write_output(plan_as_json(plan), arguments.output)
        return 0
    from jax_cmdbuf.cli.output import print_rich
    from jax_cmdbuf.report.terminal_plan import Detail, print_plan

    detail = Detail.full() if arguments.full else Detail()
    print_rich(lambda console: print_plan(plan, console, detail), arguments.output)
    return 0
