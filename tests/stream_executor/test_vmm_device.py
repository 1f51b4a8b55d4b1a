"""The parts of a device's rules that its allocator does not show; the rest is in ``test_vmm_allocator``."""

from __future__ import annotations

import pytest

from jax_cmdbuf.stream_executor.deferred_operations import XLA_BATCH
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, StreamMode
from jax_cmdbuf.stream_executor.vmm_device import MAX_STALE_MAPPING_WAITS, POLL_MICROSECONDS, VmmDevice

GRANULE = 2 << 20


@pytest.fixture
def device():
    stream = SimulatedExecutor().create_stream(StreamMode.ON_WAIT)
    device = VmmDevice(stream, None, XLA_BATCH)
    with device.lock:
        yield device
        device.close()
    assert stream.executor.memory.is_empty


def test_the_numbers_are_xlas():
    assert POLL_MICROSECONDS == 50
    assert MAX_STALE_MAPPING_WAITS == 2


def test_the_lock_is_given_up_while_waiting_and_taken_again(device):
    locked = []
    wait = device.stream.wait_microseconds

    def note(duration):
        locked.append(device.lock.locked())
        wait(duration)

    device.stream.wait_microseconds = note
    device.deallocate(device.allocate(1, False))
    device.synchronize()
    assert locked == [False]
    assert device.lock.locked()


def test_the_lock_is_taken_again_when_the_wait_fails(device):
    def fail(duration):
        raise KeyboardInterrupt

    device.deallocate(device.allocate(1, False))
    device.stream.wait_microseconds = fail
    with pytest.raises(KeyboardInterrupt):
        device.synchronize()
    del device.stream.wait_microseconds
    assert device.lock.locked()


def test_waiting_polls_in_steps(device):
    before = device.stream.executor.driver.microseconds
    for _ in range(3):
        device.stream.enqueue_seqno(0)
    device.deallocate(device.allocate(1, False))
    device.synchronize()
    assert device.stream.executor.driver.microseconds - before >= 4 * POLL_MICROSECONDS
