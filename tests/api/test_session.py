"""Choosing a backend: the simulated device is fresh, strict, and takes addresses from outside."""

from __future__ import annotations

import pytest

from jax_cmdbuf.api.session import cuda_executor, simulated_device
from jax_cmdbuf.errors import StatusError


def test_every_simulated_device_is_fresh():
    first, second = simulated_device(), simulated_device(1)
    assert first.executor.memory.is_empty
    assert second.executor.device_ordinal == 1
    assert first.stream.executor is first.executor


def test_the_next_range_begins_where_it_is_told_to():
    device = simulated_device()
    device.choose_address(0x1234 << 21)
    assert device.executor.create_reservation(1).address.opaque == 0x1234 << 21


def test_an_alias_that_leads_elsewhere_is_a_fault():
    device = simulated_device()
    mine, other = device.executor.allocate_foreign(64), device.executor.allocate_foreign(64)
    device.verify_aliases([(mine, mine)])
    with pytest.raises(StatusError, match="lead to"):
        device.verify_aliases([(mine, other)])
    with pytest.raises(StatusError, match="faulted"):
        device.stream.submit([mine])


@pytest.mark.gpu
def test_a_cuda_device_is_opened_once() -> None:
    assert cuda_executor(0) is cuda_executor(0)
    assert cuda_executor(0).granularity == 2 << 20
