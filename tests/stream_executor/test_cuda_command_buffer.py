"""Command buffers as CUDA graphs, with values read back."""

from collections.abc import Iterator

import numpy as np
import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.cuda import CudaExecutor, CudaStream
from jax_cmdbuf.stream_executor.cuda_command_buffer import CudaCommandBuffer, CudaKernel
from jax_cmdbuf.stream_executor.cuda_driver import call, current_context
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.interface import CommandBufferState, LaunchDimensions

pytestmark = pytest.mark.gpu

COUNT = 256
# out[i] = in[i] + by
ADD = b"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry add(.param .u64 out, .param .u64 in, .param .u32 by)
{
  .reg .u32 %r<4>;
  .reg .u64 %d<6>;
  ld.param.u64 %d0, [out];
  ld.param.u64 %d1, [in];
  ld.param.u32 %r0, [by];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d3, %d1, %d2;
  add.u64 %d4, %d0, %d2;
  ld.global.u32 %r2, [%d3];
  add.u32 %r3, %r2, %r0;
  st.global.u32 [%d4], %r3;
  ret;
}
\0"""
DIMENSIONS = LaunchDimensions(threads=(COUNT, 1, 1))


class Device:
    def __init__(self) -> None:
        self.executor = CudaExecutor(0)
        self.stream: CudaStream = self.executor.create_stream()
        self.kernel: CudaKernel = self.executor.load_kernel(ADD, "add")

    def buffer(self, value: int) -> DeviceAddress:
        address = self.executor.allocate_foreign(4 * COUNT)
        call("cuMemsetD32", address.opaque, value, COUNT)
        return address

    def values(self, address: DeviceAddress) -> set[int]:
        self.stream.synchronize()
        host = np.zeros(COUNT, np.uint32)
        call("cuMemcpyDtoH", host.ctypes.data, address.opaque, host.nbytes)
        return set(host.tolist())


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    with current_context(device.executor.context):
        yield device


def by(value: int) -> bytes:
    return value.to_bytes(4, "little")


def test_launches_follow_their_dependencies(device: Device) -> None:
    a, b, c = device.buffer(1), device.buffer(0), device.buffer(0)
    commands = device.executor.create_command_buffer()
    first = commands.create_launch(device.kernel, DIMENSIONS, [b, a, by(10)])
    commands.create_launch(device.kernel, DIMENSIONS, [c, b, by(100)], [first])
    commands.finalize()
    commands.submit(device.stream)
    assert device.values(c) == {111}
    commands.close()


def test_an_update_moves_one_launch_to_other_buffers(device: Device) -> None:
    a, b, c, other = device.buffer(1), device.buffer(0), device.buffer(0), device.buffer(7)
    commands = device.executor.create_command_buffer()
    first = commands.create_launch(device.kernel, DIMENSIONS, [b, a, by(10)])
    commands.create_launch(device.kernel, DIMENSIONS, [c, b, by(100)], [first])
    commands.finalize()
    for source, expected in ((a, 111), (other, 117), (a, 111)):
        commands.update()
        commands.update_launch(first, device.kernel, DIMENSIONS, [b, source, by(10)])
        commands.finalize()
        commands.submit(device.stream)
        assert device.values(c) == {expected}


def test_copies_fills_and_nested_buffers(device: Device) -> None:
    a, b, c = device.buffer(1), device.buffer(0), device.buffer(0)
    inner = device.executor.create_command_buffer()
    inner.create_launch(device.kernel, DIMENSIONS, [c, b, by(5)])
    inner.finalize()
    commands = device.executor.create_command_buffer()
    fill = commands.create_memset(a, by(0x01020304))
    copy = commands.create_memcpy(b, a, [fill])
    commands.create_nested(inner, [copy])
    commands.finalize()
    commands.submit(device.stream)
    assert device.values(c) == {0x01020309}

    commands.update()
    commands.update_memset(fill, a, by(40))
    commands.update_memcpy(copy, b, a)
    commands.finalize()
    commands.submit(device.stream)
    assert device.values(c) == {45}


def test_a_refused_update_is_rebuilt_not_poisoned(device: Device) -> None:
    a, b, c = device.buffer(1), device.buffer(0), device.buffer(3)
    commands = device.executor.create_command_buffer()
    copy = commands.create_memcpy(b, a)
    commands.finalize()
    commands.update()
    # A copy of another length is a change the executable graph does not take.
    commands.update_memcpy(copy, b.slice(0, 16), c.slice(0, 16))
    commands.finalize()
    commands.submit(device.stream)
    assert device.values(b) == {0, 3}


def test_a_rebuilt_buffer_keeps_earlier_updates_of_launches_and_nested_ones(device: Device) -> None:
    a, b, c, other = device.buffer(1), device.buffer(0), device.buffer(3), device.buffer(7)
    inner = device.executor.create_command_buffer()
    launch = inner.create_launch(device.kernel, DIMENSIONS, [c, a, by(5)])
    inner.finalize()
    commands = device.executor.create_command_buffer()
    first = commands.create_launch(device.kernel, DIMENSIONS, [b, a, by(10)])
    nested = commands.create_nested(inner, [first])
    copy = commands.create_memcpy(a, b, [nested])
    commands.finalize()
    for buffer in (inner, commands):
        buffer.update()
    inner.update_launch(launch, device.kernel, DIMENSIONS, [c, other, by(5)])
    inner.finalize()
    commands.update_nested(nested, inner)
    commands.update_launch(first, device.kernel, DIMENSIONS, [b, other, by(10)])
    commands.update_memcpy(copy, a.slice(0, 16), b.slice(0, 16))  # refused: another length
    commands.finalize()
    commands.submit(device.stream)
    assert (device.values(b), device.values(c), device.values(a)) == ({17}, {12}, {1, 17})


def test_copies_and_fills_of_nothing_keep_the_order(device: Device) -> None:
    a, b = device.buffer(1), device.buffer(0)
    commands = device.executor.create_command_buffer()
    first = commands.create_launch(device.kernel, DIMENSIONS, [b, a, by(10)])
    copy = commands.create_memcpy(b.slice(0, 0), a.slice(0, 0), [first])
    fill = commands.create_memset(b.slice(0, 0), b"\0", [copy])
    commands.create_launch(device.kernel, DIMENSIONS, [a, b, by(100)], [fill])
    commands.finalize()
    commands.update()
    commands.update_memcpy(copy, a.slice(0, 0), b.slice(0, 0))
    commands.update_memset(fill, a.slice(0, 0), b"\0")
    commands.finalize()
    commands.submit(device.stream)
    assert device.values(a) == {111}


@pytest.mark.parametrize("verb", ["update", "submit"])
def test_a_call_in_the_wrong_state_changes_nothing(device: Device, verb: str) -> None:
    commands: CudaCommandBuffer = device.executor.create_command_buffer()
    with pytest.raises(StatusError, match="state CREATE") as caught:
        commands.submit(device.stream) if verb == "submit" else commands.update()
    assert caught.value.code is StatusCode.FAILED_PRECONDITION
    assert commands.state is CommandBufferState.CREATE
    commands.close()
    commands.close()
    with pytest.raises(StatusError, match="closed"):
        commands.finalize()


def test_a_fill_pattern_that_does_not_divide_is_refused(device: Device) -> None:
    commands = device.executor.create_command_buffer()
    with pytest.raises(StatusError, match="1, 2 or 4 bytes"):
        commands.create_memset(DeviceAddress(1, 10), b"\0\0\0\0")
