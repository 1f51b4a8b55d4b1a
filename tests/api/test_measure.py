"""Measuring on a simulated device with its own clock gives back the costs that it was made with."""

from __future__ import annotations

import itertools

import pytest

from jax_cmdbuf.api.measure import (
    measure_command_buffers,
    measure_copies,
    measure_dispatch,
    measure_memory,
    wall_clock,
)
from jax_cmdbuf.api.session import simulated_device
from jax_cmdbuf.errors import StatusError


@pytest.fixture
def device():
    return simulated_device()


@pytest.fixture
def buffers(device):
    made = tuple(device.executor.allocate_foreign(4 << 20) for _ in range(2))
    yield made
    for buffer in made:
        device.executor.free_foreign(buffer)
    assert device.executor.memory.is_empty


def test_memory(device):
    found = measure_memory(device.executor, lambda: device.executor.driver.microseconds, repeats=8)
    assert found["cuMemMap"] == pytest.approx(2.1)
    assert found["cuMemAddressReserve"] == pytest.approx(5.4)
    assert found["cuMemSetAccess"] == pytest.approx(25.0, abs=0.1)
    assert found["cuMemUnmap.batched"] == pytest.approx(16.5, abs=0.1)
    assert len(found) == 9
    assert device.executor.memory.is_empty


@pytest.mark.parametrize("nth", [1, 9])
@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_refused_call_leaves_nothing(device, call, nth):
    device.executor.driver.fail(call, nth=nth)
    with pytest.raises(StatusError, match=call):
        measure_memory(device.executor, itertools.count().__next__, repeats=8)
    assert device.executor.memory.is_empty


def test_command_buffers(device, buffers):
    found = measure_command_buffers(
        device.executor, device.stream, buffers, lambda: device.executor.driver.calls.total(), repeats=4
    )
    # One call per node that is updated; launching (and the simulated stream's own call) does not grow.
    updates = {f"update.{kind}": 1 for kind in ("kernel", "memcpy", "memset", "nested")}
    assert found == updates | {"instantiate": 1, "instantiate.node": 0, "launch": 2, "launch.node": 0}


def test_copies(device, buffers):
    found = measure_copies(device.stream, buffers, lambda: device.executor.driver.microseconds, repeats=3)
    assert found == {
        "copy.d2d": 0,
        "copy.h2d": 0,
        "cuStreamWriteValue64": pytest.approx(1.6),
        "copy.d2d.gibibyte": 0,
    }


def test_dispatch():
    ticks = itertools.count()
    assert measure_dispatch(lambda: float(next(ticks)), repeats=3) == {
        "dispatch.call": 0.1,
        "dispatch.argument": 0,
        "dispatch.result": 0,
    }
    assert all(cost >= 0 for cost in measure_dispatch(wall_clock, repeats=3).values())
