"""Forecasts from recorded executables: what the recordings of real loops show, and what moving costs."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from jax_cmdbuf.api.step_counts import count_step
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.runtime.calibration import MEASURED, Calibration
from jax_cmdbuf.runtime.forecast import CallerHabits, Forecast, forecast
from xla_flags.options import CommandBufferUpdateMode as Mode

RECORDED = Path(__file__).parents[1] / "data" / "va_remap"
COSTS = Calibration("NVIDIA Test", "13.0", "0.11.2", dict.fromkeys(MEASURED, 1.0) | {"cuMemSetAccess": 25.0})
MODES = (Mode.ALWAYS_UPDATE, Mode.SKIP_TEMP, Mode.SKIP_PROFILED)


@functools.cache
def recorded(name: str) -> Executable:
    return Executable.from_file(RECORDED / name / "executable.bin.gz")


def look(name: str, mode: Mode, habits: CallerHabits) -> Forecast:
    executable = recorded(name)
    conversion = convert(executable, device=load_target("h200").device)
    return forecast(count_step(executable, conversion, mode, habits), COSTS)


def test_a_result_used_as_scratch_is_updated_in_every_mode_if_it_is_kept() -> None:
    for mode, updated in zip(MODES, (16, 15, 15), strict=True):
        assert look("mlp_same", mode, CallerHabits()).counts.updated == updated


@pytest.mark.parametrize(
    ("mode", "updated"),
    # Result and temporary are both less than a granule: where the allocator places both, they swap places.
    [(Mode.ALWAYS_UPDATE, 16), (Mode.SKIP_TEMP, 0), (Mode.SKIP_PROFILED, 15)],
)
def test_a_result_dropped_in_time_may_come_back_to_its_place(mode: Mode, updated: int) -> None:
    found = look("mlp_same", mode, CallerHabits(keeps_results=False))
    assert (found.counts.updated, found.counts.launches, found.counts.plain) == (updated, 1, 0)
    assert found.microseconds["remap"] == 0
    assert found.address_changes == updated
    assert found.total == sum(found.microseconds.values())


def test_an_input_that_moves_after_the_profile_is_remapped_at_every_step() -> None:
    still = look("mlp_same", Mode.SKIP_PROFILED, CallerHabits(keeps_results=False))
    moving = CallerHabits(frozenset(), frozenset({0}), keeps_results=False)
    found = look("mlp_same", Mode.SKIP_PROFILED, moving)
    assert still.microseconds["remap"] == 0
    assert found.counts.driver_calls["cuMemMap"] == found.counts.driver_calls["cuMemUnmap"] == 1
    assert found.microseconds["remap"] >= COSTS["native.remap"]
    # XLA's other modes update the commands that read it instead.
    for mode in MODES[:2]:
        assert look("mlp_same", mode, moving).counts.driver_calls.get("cuMemMap", 0) == 0


def test_an_input_that_always_moves_is_no_part_of_the_persistent_set() -> None:
    found = look("mlp_same", Mode.SKIP_PROFILED, CallerHabits(frozenset({0})))
    assert found.counts.updated == 16
    assert found.counts.driver_calls.get("cuMemMap", 0) == 0


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RECORDED.glob("*/executable.bin.gz")))
@pytest.mark.parametrize("mode", MODES)
def test_every_recorded_program_has_a_forecast(name: str, mode: Mode) -> None:
    found = look(name, mode, CallerHabits())
    assert found.counts.mode is mode
    assert all(value >= 0 for value in found.microseconds.values())
    assert found.counts.updated <= found.counts.commands * max(found.counts.launches, 1) + 64
