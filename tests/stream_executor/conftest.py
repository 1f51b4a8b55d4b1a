"""Devices for the allocator's tests; assertions of shared suites explain themselves as those of tests do."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusError
from tests.stream_executor.simulated_device import Device

pytest.register_assert_rewrite("tests.stream_executor.conformance", "tests.stream_executor.allocator_machine")


@pytest.fixture
def device():
    device = Device()
    yield device
    device.allocator.close()
    device.reservation.close()
    assert device.executor.memory.is_empty
    assert device.executor.memory.needless_unmaps == 0
    assert device.executor.fault is None


@pytest.fixture
def raises(device):
    """``with raises(code, text)``: the call fails so and leaves everything as it was."""

    class Raises:
        def __init__(self, code, text=None):
            self.code, self.caught = code, pytest.raises(StatusError, match=text)

        def __enter__(self):
            self.before = device.state()
            return self.caught.__enter__()

        def __exit__(self, *error):
            handled = self.caught.__exit__(*error)
            assert self.caught.excinfo.value.code is self.code
            assert device.state() == self.before
            return handled

    return Raises
