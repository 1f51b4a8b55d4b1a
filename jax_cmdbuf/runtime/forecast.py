"""What a step of a program costs the host under an update mode, and what to do about it: the data.

Invariant: counts come from a simulation of the program and prices from a calibration; nothing here guesses
either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jax_cmdbuf.runtime.calibration import Calibration
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["Advice", "CallerHabits", "Forecast", "StepCounts", "forecast"]

# The driver calls that moving a persistent buffer is made of.
_MOVING_CALLS = frozenset({"cuMemMap", "cuMemSetAccess", "cuMemUnmap"})


@dataclass(frozen=True, slots=True)
class CallerHabits:
    """What the caller does with its buffers between two calls.

    Attributes:
      moving: parameter leaves that are another array in each call, made before the last one is dropped; the
        others are the same array, or, where they are donated, the result that took their place.
      moving_later: leaves that begin to do so only when SKIP_PROFILED has ended its profile.
      keeps_results: a call's results live until the next call has returned, as in ``out = f(x)`` in a loop;
        otherwise they are dropped before it.
      takes_turns: what moves is two arrays in turns, both of which stay; otherwise a new one each time.
    """

    moving: frozenset[int] = frozenset()
    moving_later: frozenset[int] = frozenset()
    keeps_results: bool = True
    takes_turns: bool = False


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What the device is asked for in a step in the steady state.

    Attributes:
      mode: the update mode.
      updated: commands recorded again.
      commands: commands in command buffers.
      buffers: command buffers that the program has.
      launches: command buffers launched.
      plain: thunks launched one by one.
      driver_calls: calls for virtual memory, by the driver's names.
      arguments, results: arrays that the call takes and returns.
    """

    mode: CommandBufferUpdateMode
    updated: float
    commands: int
    buffers: int
    launches: float
    plain: float
    driver_calls: Mapping[str, float]
    arguments: int
    results: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """A step's price.

    Attributes:
      counts: what is priced.
      microseconds: host time by what it is for: "update", "remap", "launch", "dispatch".
    """

    counts: StepCounts
    microseconds: Mapping[str, float]

    @property
    def total(self) -> float:
        """Host microseconds of a step."""
        return sum(self.microseconds.values())

    @property
    def address_changes(self) -> float:
        """Host microseconds of a step that are due to address changes: what the mode is there to save."""
        return self.microseconds["update"] + self.microseconds["remap"]


def forecast(counts: StepCounts, cost: Calibration) -> Forecast:
    """Prices a step with what things cost on some machine."""
    calls = counts.driver_calls
    return Forecast(
        counts,
        {
            "update": counts.updated * cost["native.update"],
            # What XLA waits for is part of moving a buffer, so it costs more than the calls that it makes.
            "remap": calls.get("cuMemMap", 0) * cost["native.remap"]
            + sum(count * cost[name] for name, count in calls.items() if name not in _MOVING_CALLS),
            "launch": (counts.launches + counts.plain) * cost["launch"]
            + (counts.commands - counts.buffers) * cost["launch.node"],
            "dispatch": cost["dispatch.call"]
            + max(counts.arguments - 1, 0) * cost["dispatch.argument"]
            + max(counts.results - 1, 0) * cost["dispatch.result"],
        },
    )


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about a program's command buffers.

    Attributes:
      mode: the update mode to use.
      saves: host microseconds a step that it saves over ALWAYS_UPDATE.
      is_sure: whether the same mode is best whatever the caller does with its results.
      verdict: one sentence.
      hints: what the caller could change, one sentence each, with what it saves.
      forecasts: a step under each mode, for the habits that were assumed.
      habits: those habits.
      costs: where the costs are from.
    """

    mode: CommandBufferUpdateMode
    saves: float
    is_sure: bool
    verdict: str
    hints: tuple[str, ...]
    forecasts: Mapping[CommandBufferUpdateMode, Forecast]
    habits: CallerHabits
    costs: str
