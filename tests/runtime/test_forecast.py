"""Prices: counts times costs, and what of them address changes are."""

from __future__ import annotations

import pytest

from jax_cmdbuf.runtime.calibration import MEASURED, Calibration
from jax_cmdbuf.runtime.forecast import StepCounts, forecast
from xla_flags.options import CommandBufferUpdateMode as Mode


def test_a_step_is_priced() -> None:
    costs = {name: float(number) for number, name in enumerate(MEASURED, 1)}
    calibration = Calibration("NVIDIA Test", "13.0", "0.12", costs)
    calls = {"cuMemMap": 2, "cuMemUnmap": 2, "cuMemSetAccess": 2, "cuMemCreate": 1}
    counts = StepCounts(Mode.SKIP_PROFILED, 5, 10, 2, 2, 3, calls, 4, 2)
    found = forecast(counts, calibration)
    assert found.microseconds == pytest.approx(
        {
            "update": 5 * costs["native.update"],
            "remap": 2 * costs["native.remap"] + costs["cuMemCreate"],
            "launch": 5 * costs["launch"] + 8 * costs["launch.node"],
            "dispatch": costs["dispatch.call"] + 3 * costs["dispatch.argument"] + costs["dispatch.result"],
        }
    )
    assert found.address_changes == found.microseconds["update"] + found.microseconds["remap"]
    assert found.total == pytest.approx(sum(found.microseconds.values()))
