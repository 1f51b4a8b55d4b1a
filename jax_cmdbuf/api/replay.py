"""From the files of a recording to a replay on a simulated device, or to predicted addresses.

Invariant: a replay reads the recording's inputs only; the recorded events are compared with, never used.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_cmdbuf.api.session import simulated_device
from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import DeviceDescription, Executable
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, TARGETS, load_target
from jax_cmdbuf.runtime.guard import FIDELITY, Guarded
from jax_cmdbuf.runtime.replay import Replay, replay
from jax_cmdbuf.runtime.scenario import Scenario, load_scenario
from jax_cmdbuf.stream_executor.prediction import (
    History,
    Prediction,
    predict_addresses,
    steps_of_recording,
    steps_of_trace,
)

__all__ = ["Comparison", "compare", "predict_recording", "replay_recording"]

# The allocator's own events depend on what else the process does.
_MEMORY_KINDS = ("allocate", "deallocate")


def replay_recording(
    scenario: str | Path, executable: str | Path, target: str | None = None, guarded: bool = False
) -> Replay:
    """Feeds a recorded scenario through the machinery on a simulated device.

    Args:
      scenario: file with the recording (JSON, may be compressed with gzip).
      executable: file with the serialized executable that ran (may be compressed with gzip).
      target: the GPU it ran on, where the executable does not say; None: the recorded device's name.
      guarded: with this project's guard instead of what XLA does.

    Raises:
      InputError: a file cannot be used, or the two do not fit.
      TargetError: unknown target.
    """
    recorded = load_scenario(scenario)
    program = Executable.from_bytes(_read(executable), source=str(executable))
    device = None
    if target is not None or program.device is None:
        device = load_target(target).device if target is not None else _device_of(recorded)
    return replay(
        recorded,
        program,
        convert(program, device=device),
        simulated_device(),
        Guarded() if guarded else FIDELITY,
    )


def _device_of(recorded: Scenario) -> DeviceDescription:
    """The shipped description of the device that the recording names, or the default one."""
    for name in TARGETS:
        device = load_target(name).device
        if device.name == recorded.device:
            return device
    return load_target(DEFAULT_TARGET).device


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a replay agrees with its recording.

    Attributes:
      executions: recorded executions.
      events: recorded events compared, those of the memory allocator left out.
      differing: executions whose events differ, or of which one failed and the other did not.
    """

    executions: int
    events: int
    differing: tuple[int, ...]


def compare(result: Replay) -> Comparison:
    """Compares a replay with the events and failures that were recorded."""
    recorded, differing, events = result.scenario.recorded, [], 0
    failures = [bool(each.error) for each in result.scenario.executions] or [False] * len(recorded)
    for number, (expected, execution) in enumerate(zip(recorded, result.executions, strict=True)):
        wanted = [dict(event) for event in expected if event["kind"] not in _MEMORY_KINDS]
        found = [event for event in execution.to_json()["events"] if event["kind"] not in _MEMORY_KINDS]
        failed = any(event["kind"] == "error" for event in found)
        if [event for event in found if event["kind"] != "error"] != wanted or failed != failures[number]:
            differing.append(number)
        events += len(wanted)
    return Comparison(len(recorded), events, tuple(differing))


def predict_recording(path: str | Path) -> Prediction:
    """Predicts the addresses in a scenario's recording, or in a whole process's (``allocator-<MODE>.jsonl``).

    Raises:
      InputError: the file cannot be used.
    """
    data = _read(path)
    try:
        if Path(path).name.removesuffix(".gz").endswith(".jsonl"):
            lines: Sequence[Mapping[str, Any]] = [json.loads(line) for line in data.splitlines()]
            return predict_addresses(steps_of_recording(lines), History.COMPLETE)
        trace = json.loads(data)
        if not isinstance(trace, dict) or not {"executions", "thread_events"} & trace.keys():
            raise InputError(f"{path} is not a recording: it holds no executions")
        return predict_addresses(steps_of_trace(trace), History.PARTIAL)
    except ValueError as error:
        raise InputError(f"recording {path} is not JSON: {error}") from error
    except (AttributeError, TypeError) as error:
        raise InputError(f"{path} is not a recording: {error}") from error


def _read(path: str | Path) -> bytes:
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
