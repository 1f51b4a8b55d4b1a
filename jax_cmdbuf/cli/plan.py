"""``jax-cmdbuf plan``: what XLA compiled, and what each update mode would do with it.

Invariant: everything is worked out before the first byte of output, so an error never leaves half a report.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING

from jax_cmdbuf.errors import InputError

if TYPE_CHECKING:
    from jax_cmdbuf.api.plan import PlanOptions

__all__ = ["HELP", "NAME", "add_arguments", "add_source_arguments", "plan_options", "run"]

NAME = "plan"
HELP = "show the command buffers and allocations of a compiled program, for a GPU that need not be there"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    group = add_source_arguments(parser)
    group.add_argument(
        "--compare",
        action="append",
        metavar="FLAGS",
        help="given twice: compile with each of these flags after --xla_flags, and show what differs",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=("text", "json", "html"), default="text", help="default: text")
    output.add_argument("--output", "-o", metavar="FILE", help="write there instead of to stdout")
    output.add_argument("--full", action="store_true", help="text: show every command and allocation")


def add_source_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declares what to plan and how to compile it; the group of the latter can be added to."""
    parser.add_argument(
        "source",
        help="file.py:function (its arguments come from <function>_args beside it, or from --arg), a "
        "serialized executable, HLO text or StableHLO text",
    )
    _add_program_arguments(parser.add_argument_group("what to compile, for what"))
    group = parser.add_argument_group("how to compile")
    _add_compilation_arguments(group)
    return group


def _add_program_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target",
        metavar="GPU",
        help="GPU to compile for: a100, h100, h200 (default), b200, l4, l40s, a10g, t4, rtx4090, rtx5090, or "
        "the path of a GpuTargetConfigProto text",
    )
    group.add_argument(
        "--arg",
        dest="shapes",
        action="append",
        default=[],
        metavar="SHAPE",
        help="XLA shape of the next positional argument, such as f32[128,256]; repeatable",
    )
    group.add_argument(
        "--devices", type=int, metavar="N", help="compile for a mesh of N GPUs, with one axis named 'data'"
    )
    group.add_argument(
        "--shard",
        action="append",
        metavar="ARGUMENT",
        help="split this argument over the devices by its leading axis; repeatable, 'none' for no argument "
        "(default: every argument after the first that looks like a batch)",
    )


def _add_compilation_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--xla_flags",
        "--xla-flags",
        metavar="FLAGS",
        help="XLA_FLAGS of the compilation (default: those of the environment)",
    )
    group.add_argument(
        "--ffi-compatible",
        action="append",
        default=[],
        metavar="TARGET",
        help="take this FFI target as command-buffer compatible: what its handler declares is not in an "
        "executable; repeatable",
    )
    group.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="end a compilation after this time"
    )


def run(arguments: argparse.Namespace) -> int:
    """Makes the plan, or two, and shows it."""
    options = plan_options(arguments)
    if arguments.compare is None:
        _show_plan(arguments, options)
    elif len(arguments.compare) == 2:
        _show_comparison(arguments, options)
    else:
        raise InputError(f"--compare must be given twice, not {len(arguments.compare)} times")
    return 0


def plan_options(arguments: argparse.Namespace) -> PlanOptions:
    """What ``add_source_arguments`` declared, as options of a plan."""
    from jax_cmdbuf.api.plan import PlanOptions

    return PlanOptions(
        arguments.target,
        arguments.devices,
        None if arguments.shard is None else tuple(name for name in arguments.shard if name != "none"),
        tuple(arguments.shapes),
        arguments.xla_flags,
        arguments.timeout,
        tuple(arguments.ffi_compatible),
    )


def _show_plan(arguments: argparse.Namespace, options: PlanOptions) -> None:
    from jax_cmdbuf.api.plan import plan_source
    from jax_cmdbuf.cli.output import print_rich, progress, write_output

    with progress(f"planning {arguments.source}"):
        plan = plan_source(arguments.source, options)
    match arguments.format:
        case "json":
            from jax_cmdbuf.report.json_plan import plan_as_json

            write_output(plan_as_json(plan), arguments.output)
        case "html":
            from jax_cmdbuf.report.html_plan import plan_as_html

            write_output(plan_as_html(plan), arguments.output)
        case _:
            from jax_cmdbuf.report.terminal_plan import Detail, print_plan

            detail = Detail.full() if arguments.full else Detail()
            print_rich(lambda console: print_plan(plan, console, detail), arguments.output)


def _show_comparison(arguments: argparse.Namespace, options: PlanOptions) -> None:
    from jax_cmdbuf.api.plan import plan_source
    from jax_cmdbuf.cli.output import print_rich, progress, write_output
    from jax_cmdbuf.report.compare import Comparison, comparison_as_dict

    base = os.environ.get("XLA_FLAGS", "") if options.xla_flags is None else options.xla_flags
    plans = []
    for flags in arguments.compare:
        with progress(f"planning {arguments.source} with {flags}"):
            each = dataclasses.replace(options, xla_flags=f"{base} {flags}".strip())
            plans.append(plan_source(arguments.source, each, must_compile=True))
    comparison = Comparison(plans[0], plans[1], labels=(arguments.compare[0], arguments.compare[1]))
    match arguments.format:
        case "json":
            from jax_cmdbuf.report.json_plan import json_text

            write_output(json_text(comparison_as_dict(comparison)), arguments.output)
        case "html":
            from jax_cmdbuf.report.html_compare import comparison_as_html

            write_output(comparison_as_html(comparison), arguments.output)
        case _:
            from jax_cmdbuf.report.terminal_compare import print_comparison
            from jax_cmdbuf.report.terminal_plan import Detail

            detail = Detail.full() if arguments.full else Detail()
            print_rich(lambda console: print_comparison(comparison, console, detail), arguments.output)
