"""All measurements in one go."""

from __future__ import annotations

import pytest

from jax_cmdbuf.api.calibrate import calibrate
from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.runtime.calibration import MEASURED


def test_it_needs_a_gpu() -> None:
    with pytest.raises(MissingDependencyError, match=r"JAX has none here, only "):
        calibrate()


@pytest.mark.gpu
def test_every_cost_is_measured() -> None:
    steps: list[str] = []
    calibration = calibrate(steps.append)
    assert set(calibration.microseconds) == set(MEASURED)
    assert len(steps) == 5
    assert calibration["cuMemMap"] < calibration["cuMemSetAccess"]
