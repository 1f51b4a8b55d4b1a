"""Runs the recorded loops on the CPU under the simulated runtime, and says what was recorded of them.

The loops are those of ``tests/data/va_remap``, as they were run on an H200.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.observation import reset_simulation, simulation
from jax_cmdbuf.api.probe import PROBE_LOG, ProbeRecord, probe

__all__ = ["MODE", "RECORDINGS", "loops", "names", "predicted", "recorded", "wrapped"]

RECORDINGS = Path(__file__).parents[1] / "data" / "va_remap"
MODE = "SKIP_PROFILED"

# What a prediction must get right, in order, in every execution: kind of event -> its fields.
_COMPARED = {
    "profile_step": ("step", "limit"),
    "not_vmm_backed": ("allocation",),
    "shared_buffer": ("allocation",),
    "transition_active": ("automatic", "selected", "candidates"),
    "transition_disabled": (),
    "update_done": ("commands", "skipped"),
}

Outcome = list[tuple[Any, ...]]


@cache
def loops() -> ModuleType:
    """The loops; they make arrays when they are loaded."""
    sys.path.insert(0, str(RECORDINGS))
    try:
        found = importlib.import_module("scenarios")
        importlib.import_module("models")
    finally:
        sys.path.remove(str(RECORDINGS))
    return found


def names() -> list[str]:
    """The loops that have a recording; ``threads`` was run by another program."""
    folders = {path.parent.name for path in RECORDINGS.glob("*/executable.bin.gz")}
    return sorted(folders - {"threads"})


def recorded(name: str) -> list[Outcome]:
    """What XLA reported in each execution."""
    recording = json.loads(gzip.decompress((RECORDINGS / name / f"{MODE}.json.gz").read_bytes()))
    return [_outcome(execution["events"]) for execution in recording["executions"]]


def predicted(name: str, plan: str | Path | None) -> list[Outcome]:
    """What the simulated runtime reports when the loop runs here.

    Args:
      name: which loop.
      plan: file of the executable to simulate; None: compile it for the target.
    """
    reset_simulation()
    functions: list[Any] = []

    def wrap(function: Any, donate: tuple[int, ...]) -> Any:
        functions.append(
            command_buffer(function, donate_argnums=donate, update_mode=MODE, runtime="simulated", plan=plan)
        )
        return functions[-1]

    with wrapped(name):
        loops().run(name, wrap)
    programs = [each for each in simulation().runtime.programs if each.observed is functions[0].observed]
    outcomes = [
        _outcome(event.to_json() for event in execution.events)
        for program in programs
        for execution in program.executions.get(0, ())
    ]
    reset_simulation()
    return outcomes


def wrapped(name: str) -> Any:
    """For a ``with`` block: gives the loops a probe that fails where it did, and foreign memory."""
    module, calls = loops(), iter(range(1, 1 << 30))
    failing = module.SCENARIOS[name].failing

    def fail(record: ProbeRecord) -> None:
        if next(calls) in failing:
            raise RuntimeError("injected failure")

    def foreign(array: jax.Array) -> jax.Array:
        copied = jnp.array(array, copy=True)
        simulation().runtime.declare_foreign(copied)
        return copied

    module.PROBE, module.FOREIGN = probe, foreign
    return PROBE_LOG.subscribe(fail)


def _outcome(events: Iterable[Mapping[str, Any]]) -> Outcome:
    return [
        (event["kind"], *(event[field] for field in _COMPARED[event["kind"]]))
        for event in events
        if event["kind"] in _COMPARED
    ]
