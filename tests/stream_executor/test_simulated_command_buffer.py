"""What the simulated command buffer checks; the states it shares with a real one are in ``conformance``."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.interface import LaunchDimensions
from jax_cmdbuf.stream_executor.memory import DriverError
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor
from tests.stream_executor.simulated_device import GRANULE


@pytest.fixture
def executor():
    return SimulatedExecutor()


@pytest.fixture
def kernel(executor):
    return executor.load_kernel(b"", "kernel")


@pytest.fixture
def address(executor):
    return executor.allocate_foreign(GRANULE)


NOWHERE = DeviceAddress(64, 64)


def refused(code):
    return pytest.raises(StatusError, match=code.name)


def record(executor, kernel, arguments):
    buffer = executor.create_command_buffer()
    command = buffer.create_launch(kernel, LaunchDimensions(), arguments)
    buffer.finalize()
    return buffer, command


def test_pointers_are_checked_at_every_submit_and_values_are_not(executor, kernel, address):
    buffer, _ = record(executor, kernel, [b"\x40\0\0\0", address.slice(8, 8)])
    stream = executor.create_stream()
    buffer.submit(stream)
    executor.free_foreign(address)
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        buffer.submit(stream)


def test_recording_at_a_wrong_address_is_no_error_yet(executor, kernel):
    buffer, _ = record(executor, kernel, [NOWHERE])
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        buffer.submit(executor.create_stream())


def test_an_update_replaces_the_addresses(executor, kernel, address):
    buffer, command = record(executor, kernel, [NOWHERE])
    buffer.update()
    buffer.update_launch(command, kernel, LaunchDimensions(), [address])
    buffer.finalize()
    buffer.submit(executor.create_stream())
    assert command.addresses == (address,)


def test_nested_commands_are_checked_too(executor, kernel):
    nested, _ = record(executor, kernel, [NOWHERE])
    outer = executor.create_command_buffer()
    outer.create_nested(nested)
    outer.finalize()
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        outer.submit(executor.create_stream())


def test_only_finalized_buffers_of_others_nest(executor, kernel):
    buffer, unfinished = executor.create_command_buffer(), executor.create_command_buffer()
    with refused(StatusCode.FAILED_PRECONDITION):
        buffer.create_nested(unfinished)
    with refused(StatusCode.INVALID_ARGUMENT):
        buffer.create_nested(buffer)
    assert buffer.commands == []


def test_commands_belong_to_their_buffer_and_keep_their_kind(executor, kernel, address):
    first, launch = record(executor, kernel, [])
    second, _ = record(executor, kernel, [])
    second.update()
    with refused(StatusCode.INVALID_ARGUMENT):
        second.update_launch(launch, kernel, LaunchDimensions(), [])
    first.update()
    with refused(StatusCode.INVALID_ARGUMENT):
        first.update_memset(launch, address, b"\0")


def test_dependencies_are_commands_of_the_same_buffer(executor, kernel):
    _, foreign = record(executor, kernel, [])
    buffer = executor.create_command_buffer()
    with refused(StatusCode.INVALID_ARGUMENT):
        buffer.create_launch(kernel, LaunchDimensions(), [], [foreign])
    assert buffer.commands == []


@pytest.mark.parametrize("pattern", [b"", b"abc", b"abcde"])
def test_patterns_have_one_two_or_four_bytes(executor, address, pattern):
    with refused(StatusCode.INVALID_ARGUMENT):
        executor.create_command_buffer().create_memset(address, pattern)


def test_a_pattern_must_fill_and_a_copy_must_fit(executor, address):
    buffer = executor.create_command_buffer()
    with refused(StatusCode.INVALID_ARGUMENT):
        buffer.create_memset(address.slice(0, 6), b"abcd")
    with refused(StatusCode.INVALID_ARGUMENT):
        buffer.create_memcpy(address.slice(0, 6), address.slice(8, 7))


def test_streams_of_other_devices_are_refused(executor, kernel):
    buffer, _ = record(executor, kernel, [])
    with refused(StatusCode.INVALID_ARGUMENT):
        buffer.submit(SimulatedExecutor(1).create_stream())


def test_a_closed_buffer_takes_no_calls(executor, kernel):
    buffer, _ = record(executor, kernel, [])
    buffer.close()
    for call in (buffer.update, lambda: buffer.submit(executor.create_stream())):
        with pytest.raises(StatusError, match="closed"):
            call()


def test_calls_are_counted_and_can_fail(executor, kernel, address):
    executor.driver.fail("cuGraphAddNode", 2)
    buffer = executor.create_command_buffer()
    buffer.create_launch(kernel, LaunchDimensions(), [])
    with pytest.raises(DriverError, match="injected"):
        buffer.create_memset(address, b"\0")
    assert [command.kind for command in buffer.commands] == ["launch"]
    buffer.finalize()
    assert executor.driver.calls["cuGraphInstantiate"] == 1
