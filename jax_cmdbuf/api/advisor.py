"""Which update mode a program should run under, by forecast, and what its caller could do better.

Invariant: a mode is advised over a simpler one only for a saving that is larger than the forecast's error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jax_cmdbuf.api.step_counts import count_step
from jax_cmdbuf.errors import InputError, StatusError
from jax_cmdbuf.executable.conversion import Conversion
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.model import Plan
from jax_cmdbuf.runtime.calibration import Calibration, load_calibration, shipped_calibration
from jax_cmdbuf.runtime.forecast import Advice, CallerHabits, Forecast, forecast
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["advise", "advise_plan"]

# From the simplest to the most involved.
_MODES = (
    CommandBufferUpdateMode.ALWAYS_UPDATE,
    CommandBufferUpdateMode.SKIP_TEMP,
    CommandBufferUpdateMode.SKIP_PROFILED,
)
# A forecast is off by up to a quarter, and by a few microseconds of a host's noise.
_ERROR = 0.25
_NOISE_US = 2.0
# Below this share of a step's host time address changes are not worth a thought.
_WORTH = 0.02


def advise(
    executable: Executable,
    conversion: Conversion,
    calibration: Calibration,
    habits: CallerHabits | None = None,
) -> Advice:
    """Forecasts every mode and compares.

    Args:
      executable: the program.
      conversion: its command buffers.
      calibration: what things cost.
      habits: what the caller does with its buffers; None: arguments stay, or are donated and come back, and
        results live until the next call has returned.

    Raises:
      InputError: ``habits`` names parameters that the program does not have.
    """
    habits = habits or CallerHabits()
    leaves = len(executable.parameter_allocations)
    if unknown := [leaf for leaf in habits.moving | habits.moving_later if not 0 <= leaf < leaves]:
        raise InputError(
            f"{executable.module} has {leaves} parameter leaves, so there is no leaf {unknown[0]}"
        )

    def look(given: CallerHabits) -> dict[CommandBufferUpdateMode, Forecast]:
        return {
            mode: forecast(count_step(executable, conversion, mode, given), calibration) for mode in _MODES
        }

    forecasts = look(habits)
    mode = _best(forecasts)
    other = look(CallerHabits(habits.moving, habits.moving_later, not habits.keeps_results))
    plain = forecasts[CommandBufferUpdateMode.ALWAYS_UPDATE]
    saves = plain.address_changes - forecasts[mode].address_changes
    hints = tuple(_hints(executable, conversion, calibration, habits, forecasts[mode], other[mode]))
    costs = f"{calibration.gpu}, jaxlib {calibration.jaxlib}, driver {calibration.driver}"
    verdict = _verdict(plain, mode, saves)
    return Advice(mode, saves, _best(other) is mode, verdict, hints, forecasts, habits, costs)


def advise_plan(
    plan: Plan, moving: Sequence[str] = (), keeps_results: bool = True, calibration: str | None = None
) -> Advice:
    """The same for a plan, with arguments by name.

    Args:
      plan: the program.
      moving: arguments that are another array in each call: paths, or the parts that they begin with.
      keeps_results: a call's results live until the next call has returned.
      calibration: file with the costs; None: those of an H200.

    Raises:
      InputError: the program has no such argument, or the file is no calibration.
    """
    costs = shipped_calibration() if calibration is None else load_calibration(calibration)
    labels = {row.allocation.index: row.path or row.label for row in plan.allocations}
    paths = [labels[index] for index in plan.executable.parameter_allocations]
    leaves = set[int]()
    for name in moving:
        found = {leaf for leaf, path in enumerate(paths) if _begins_with(path, name)}
        if not found:
            known = ", ".join(dict.fromkeys(re.split(r"[.\[]", path)[0] for path in paths)) or "none"
            raise InputError(f"{plan.executable.module} has no argument {name}; it has: {known}")
        leaves |= found
    habits = CallerHabits(frozenset(leaves), keeps_results=keeps_results)
    return advise(plan.executable, plan.conversion, costs, habits)


def _begins_with(path: str, part: str) -> bool:
    return path == part or (path.startswith(part) and path[len(part)] in ".[")


def _best(forecasts: Mapping[CommandBufferUpdateMode, Forecast]) -> CommandBufferUpdateMode:
    best = _MODES[0]
    for mode in _MODES[1:]:
        now = forecasts[best].address_changes
        saving = now - forecasts[mode].address_changes
        if saving > _ERROR * now and saving > _NOISE_US:
            best = mode
    return best


def _verdict(plain: Forecast, mode: CommandBufferUpdateMode, saves: float) -> str:
    if not plain.counts.commands:
        return "XLA makes no command buffer of this program, so no update mode changes anything"
    if plain.counts.commands == 1:
        return "one command: a command buffer saves nothing here, and no update mode changes that"
    if plain.address_changes < _WORTH * plain.total:
        share = plain.address_changes / plain.total
        return f"address changes are {share:.1%} of a step's host time: no update mode will help much"
    if mode is CommandBufferUpdateMode.ALWAYS_UPDATE:
        return "no mode is forecast to beat ALWAYS_UPDATE for this caller"
    return f"{mode.name} is forecast to save {saves:.0f} µs of host time per step over ALWAYS_UPDATE"


def _hints(
    executable: Executable,
    conversion: Conversion,
    calibration: Calibration,
    habits: CallerHabits,
    now: Forecast,
    other: Forecast,
) -> list[str]:
    found = []
    if habits.keeps_results and now.address_changes - other.address_changes > _NOISE_US:
        gain = now.address_changes - other.address_changes
        found.append(f"drop a call's results before the next call (del out): {gain:.0f} µs less per step")
    if now.counts.mode is CommandBufferUpdateMode.SKIP_PROFILED:
        still = [leaf for leaf in range(len(executable.parameter_allocations)) if leaf not in habits.moving]
        worst = _worst_if_moving(executable, conversion, calibration, habits, still)
        if worst is not None and worst - now.address_changes > _NOISE_US:
            found.append(
                "an argument that begins to move after the third call costs "
                f"{worst - now.address_changes:.0f} µs per step, each: keep them where they are"
            )
    return found


def _worst_if_moving(
    executable: Executable,
    conversion: Conversion,
    calibration: Calibration,
    habits: CallerHabits,
    leaves: list[int],
) -> float | None:
    """Host time of address changes if one argument that is not donated moves later on."""
    results = set(executable.result_allocations)
    free = [leaf for leaf in leaves if executable.parameter_allocations[leaf] not in results]
    if not free:
        return None
    moving = CallerHabits(habits.moving, frozenset(free[:1]), habits.keeps_results)
    try:
        mode = CommandBufferUpdateMode.SKIP_PROFILED
        return forecast(count_step(executable, conversion, mode, moving), calibration).address_changes
    except StatusError:  # XLA fails such an execution, which the plan says elsewhere
        return None
