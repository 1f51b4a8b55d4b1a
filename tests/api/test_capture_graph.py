"""The captured step on a simulated device: what is copied where; and what cannot be captured."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.capture_graph import GraphEngine, make_graph_engine
from jax_cmdbuf.api.capture_step import trace_step
from jax_cmdbuf.api.session import simulated_device
from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.frozen_program import FrozenProgram
from jax_cmdbuf.stream_executor.device_address import DeviceAddress

RECORDED = Path(__file__).parents[1] / "data" / "va_remap" / "two_gemm_hold" / "executable.bin.gz"


def two_gemm(x, a, b):
    return x, jnp.tanh(x @ a) @ b


class Copies:
    """A stream that notes copies; a CPU's arrays are no memory of the simulated device."""

    def __init__(self, stream):
        self.made = []
        self._stream = stream

    def memcpy_d2d(self, destination, source):
        self.made.append((source, destination))

    def __getattr__(self, name):
        return getattr(self._stream, name)


def test_arguments_go_to_the_program_s_own_memory_and_results_come_from_it():
    executable = Executable.from_file(RECORDED)
    elements = [each.size // 4 for each in executable.allocations]
    arguments = [np.zeros(elements[index], np.float32) for index in executable.parameter_allocations]
    result = elements[executable.result_allocations[0]]
    step = trace_step(lambda _, *args: jnp.zeros(result), None, tuple(arguments), {})
    device = simulated_device()
    stream = Copies(device.stream)
    program = FrozenProgram(executable, stream, {})
    closed = []
    engine = GraphEngine(step, program, stream, jax.devices("cpu")[0], lambda: closed.append(True))
    assert not stream.made
    value = jnp.ones(arguments[0].shape)
    engine.write(0, value)
    ((source, destination),) = stream.made
    assert (source.opaque, destination) == (value.unsafe_buffer_pointer(), program.parameters[0])
    launches = device.executor.driver.calls["cuGraphLaunch"]
    engine.run(1)
    assert device.executor.driver.calls["cuGraphLaunch"] == launches + 1
    (read,) = engine.read_results(range(1))
    assert stream.made[-1] == (program.results[0], DeviceAddress(read.unsafe_buffer_pointer(), 4 * result))
    engine.close()
    assert closed == [True]
    assert device.executor.memory.is_empty


def test_without_a_gpu_the_reason_is_said():
    step = trace_step(two_gemm, jnp.zeros((4, 4)), (jnp.zeros((4, 4)), jnp.zeros((4, 4))), {})
    with pytest.raises(StatusError, match=r"UNIMPLEMENTED: .* is no CUDA device"):
        make_graph_engine(step)
