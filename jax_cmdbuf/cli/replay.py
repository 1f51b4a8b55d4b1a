"""``jax-cmdbuf replay``: a recorded loop, run again through this project's model of XLA.

Invariant: everything is worked out before the first byte of output.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from jax_cmdbuf.cli.output import print_rich, write_output
from jax_cmdbuf.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from jax_cmdbuf.api.replay import Comparison
    from jax_cmdbuf.runtime.replay import Replay
    from jax_cmdbuf.stream_executor.prediction import Prediction

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "replay"
HELP = (
    "run a recorded loop again through the model of XLA's update modes and show what happens to each buffer"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument(
        "scenario",
        help="recording of executions (JSON), or of a process's allocator (.jsonl); may be gzipped",
    )
    parser.add_argument("--executable", metavar="FILE", help="the serialized executable that ran")
    parser.add_argument(
        "--target",
        metavar="GPU",
        help="the GPU it ran on, where the executable does not say (default: the recorded device)",
    )
    parser.add_argument(
        "--predict-addresses",
        action="store_true",
        help="also predict the addresses the allocator hands out, from their order alone",
    )
    parser.add_argument(
        "--guard",
        action="store_true",
        help="beyond XLA: take a buffer that cannot be remapped, or moves often, out of the remapped set "
        "instead of failing or slowing down",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--output", "-o", metavar="FILE", help="write there instead of to the terminal")


def run(arguments: argparse.Namespace) -> int:
    """Replays, predicts, and shows the result."""
    from jax_cmdbuf.api.replay import compare, predict_recording, replay_recording

    if arguments.executable is None and not arguments.predict_addresses:
        raise InputError(
            "give the executable that ran with --executable, or ask for --predict-addresses alone"
        )
    prediction = predict_recording(arguments.scenario) if arguments.predict_addresses else None
    result = None
    if arguments.executable is not None:
        result = replay_recording(
            arguments.scenario, arguments.executable, arguments.target, guarded=arguments.guard
        )
    if arguments.format == "json":
        value: dict[str, Any] = result.to_json() if result is not None else {}
        if prediction is not None:
            value["predicted_addresses"] = _as_json(prediction)
        write_output(json.dumps(value) + "\n", arguments.output)
        return 0
    comparison = compare(result) if result is not None and not arguments.guard else None
    print_rich(lambda console: _show(console, result, comparison, prediction), arguments.output)
    return 0


def _as_json(prediction: Prediction) -> dict[str, Any]:
    return {
        "allocations": [
            {"size": each.size, "recorded": each.recorded, "predicted": each.predicted}
            for each in prediction.allocations
        ],
        "reused": prediction.reused,
        "correct": prediction.correct,
    }


def _show(
    console: Console, result: Replay | None, comparison: Comparison | None, prediction: Prediction | None
) -> None:
    from jax_cmdbuf.report.terminal_replay import show_timeline
    from jax_cmdbuf.report.timeline import make_timeline

    if result is not None:
        show_timeline(make_timeline(result), console)
    if comparison is not None and comparison.executions:
        differing = ", ".join(str(number) for number in comparison.differing)
        verdict = f"differs in execution {differing}" if differing else "agrees with the recording"
        console.print(
            f"{verdict}: {comparison.events} events of {comparison.executions} recorded executions compared"
        )
    if prediction is not None:
        total, reused = len(prediction.allocations), prediction.reused
        console.print(
            f"addresses: {prediction.correct} of {reused} predicted reuses are as recorded; "
            f"the other {total - reused} of {total} allocations are the driver's choice"
        )
