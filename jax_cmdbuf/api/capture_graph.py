"""A captured step as CUDA graphs on buffers of its own, launched on XLA's stream.

Invariants: all copies and launches go to the stream that XLA itself uses, so they are ordered with the
programs that make the arrays copied in and with everything XLA does later with their memory; arrays handed
out are JAX's own, filled and finished before they are returned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jax_cmdbuf.api.capture_step import CapturedStep, Leaf
from jax_cmdbuf.api.compute_stream import compute_stream
from jax_cmdbuf.api.session import cuda_executor
from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.recordable import unsupported_thunks
from jax_cmdbuf.runtime.frozen_program import FrozenProgram
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress

__all__ = ["GraphEngine", "make_graph_engine"]


class GraphEngine:
    """``Engine`` on a device that runs command buffers.

    Args:
      step: the step.
      program: the same, frozen.
      stream: where the program runs.
      device: JAX's name of the device.
      close_device: called at last.
    """

    def __init__(
        self,
        step: CapturedStep,
        program: FrozenProgram,
        stream: se.Stream,
        device: jax.Device,
        close_device: Callable[[], None],
    ) -> None:
        self._step = step
        self._program = program
        self._stream = stream
        self._device = device
        self._close_device = close_device
        self._makers: dict[tuple[tuple[tuple[int, ...], Any], ...], Any] = {}
        for leaf, value in enumerate(jax.tree.leaves((step.args, step.kwargs))):
            self.write(leaf, np.asarray(value, step.arguments[leaf].dtype) if _is_host(value) else value)

    def write(self, leaf: int, value: Any) -> None:
        """See ``Engine``."""
        destination = self._program.parameters[leaf]
        if destination.is_null:
            return
        if isinstance(value, jax.Array):
            if value.committed and value.devices() != {self._device}:
                path = self._step.arguments[leaf].path
                raise StatusError(
                    StatusCode.INVALID_ARGUMENT,
                    f"{path} lies on {value.sharding}, the capture on {self._device}",
                )
            if value.devices() != {self._device}:
                value = jax.device_put(value, self._device)
            # What XLA has not begun to write yet would be read too early only if another stream wrote it.
            value.block_until_ready()
            self._stream.memcpy_d2d(
                destination, DeviceAddress(value.unsafe_buffer_pointer(), destination.size)
            )
        else:
            content = np.ascontiguousarray(value)
            self._stream.memcpy_h2d(destination, content.ctypes.data)

    def run(self, count: int) -> None:
        """See ``Engine``."""
        if count == 1:
            self._program.launch()
        else:
            self._program.launch_many(count)

    def read_arguments(self, leaves: range) -> list[jax.Array]:
        """See ``Engine``."""
        return self._read(leaves, self._step.arguments, self._program.parameters)

    def read_results(self, leaves: range) -> list[jax.Array]:
        """See ``Engine``."""
        return self._read(leaves, self._step.results, self._program.results)

    def _read(
        self, leaves: range, types: Sequence[Leaf], addresses: Sequence[DeviceAddress]
    ) -> list[jax.Array]:
        arrays = self._fresh(leaves, types)
        for leaf, array in zip(leaves, arrays, strict=True):
            source = addresses[leaf]
            if not source.is_null:
                target = DeviceAddress(array.unsafe_buffer_pointer(), source.size)
                self._stream.memcpy_d2d(target, source)
        self._stream.synchronize()
        return arrays

    def _fresh(self, leaves: range, types: Sequence[Leaf]) -> list[jax.Array]:
        """New arrays to write into; nobody else has seen them."""
        wanted = tuple((each.shape, each.dtype) for each in types[leaves.start : leaves.stop])
        if wanted not in self._makers:
            sharding = jax.sharding.SingleDeviceSharding(self._device)
            self._makers[wanted] = jax.jit(
                lambda: [jnp.zeros(shape, dtype) for shape, dtype in wanted], out_shardings=sharding
            )
        made: list[jax.Array] = self._makers[wanted]()
        jax.block_until_ready(made)  # type: ignore[no-untyped-call]
        return made

    def synchronize(self) -> None:
        """See ``Engine``."""
        self._stream.synchronize()

    def close(self) -> None:
        """See ``Engine``."""
        self._program.close()
        self._close_device()


def make_graph_engine(step: CapturedStep) -> GraphEngine:
    """Compiles the step for the GPU at hand and freezes it.

    Raises:
      StatusError: UNIMPLEMENTED, with the reason: no CUDA device, several devices, or a program that only XLA
        can run.
      CmdbufError: the driver refused, or something is missing on this machine.
    """
    device = _device(step)
    executable = _compile(step)
    if unsupported := unsupported_thunks(executable):
        raise StatusError(StatusCode.UNIMPLEMENTED, f"only XLA can run {unsupported[0]}")
    counts = len(executable.parameter_allocations), len(executable.result_allocations)
    if counts != (len(step.arguments), len(step.results)):
        raise StatusError(
            StatusCode.UNIMPLEMENTED,
            f"the program of {step.name} takes and returns {counts[0]} and {counts[1]} arrays, the function "
            f"{len(step.arguments)} and {len(step.results)}",
        )
    stream = cuda_executor(device.local_hardware_id or 0).wrap_stream(compute_stream(device))
    with ExitStack() as undo:
        undo.callback(stream.close)
        # The CUDA classes take only one another's objects, which the protocol cannot say.
        same_stream = cast(se.Stream, stream)
        program = FrozenProgram(executable, same_stream, {leaf: leaf for leaf in step.state.leaves})
        undo.callback(program.close)
        engine = GraphEngine(step, program, same_stream, device, stream.close)
        undo.pop_all()
    return engine


def _device(step: CapturedStep) -> jax.Device:
    """The one CUDA device that the step's arrays are on."""
    arrays = [leaf for leaf in jax.tree.leaves((step.args, step.kwargs)) if isinstance(leaf, jax.Array)]
    devices = {device for array in arrays if array.committed for device in array.devices()}
    devices = devices or {jax.config.jax_default_device or jax.local_devices()[0]}
    if len(devices) > 1:
        raise StatusError(
            StatusCode.UNIMPLEMENTED, f"{step.name} runs on {len(devices)} devices; a capture has one"
        )
    (device,) = devices
    if device.platform not in ("cuda", "gpu"):
        raise StatusError(StatusCode.UNIMPLEMENTED, f"{device} is no CUDA device")
    return device


def _compile(step: CapturedStep) -> Executable:
    """The step as its caller's own calls compile it, so that its bits are theirs, if that can be carried.

    Otherwise with every argument kept and the state donated, if XLA then gives every piece of it its own
    place back, else with nothing donated.
    """
    state_given = jax.jit(step.jitted, keep_unused=True, donate_argnums=0)
    for jitted in (step.given, state_given):
        executable = _compiled(step, jitted)
        if _carries_in_place(executable, step):
            return executable
    return _compiled(step, jax.jit(step.jitted, keep_unused=True))


def _compiled(step: CapturedStep, jitted: Any) -> Executable:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        compiled: Any = jitted.lower(*step.args, **step.kwargs).compile()
    return Executable.from_compiled(compiled)


def _carries_in_place(executable: Executable, step: CapturedStep) -> bool:
    """Whether each result that reuses an argument's memory reuses that of the argument it becomes."""
    parameters, results = executable.parameter_allocations, executable.result_allocations
    for number, allocation in enumerate(results):
        if allocation in parameters and parameters.index(allocation) != number:
            return False
    return len(parameters) == len(step.arguments)


def _is_host(value: Any) -> bool:
    return not isinstance(value, jax.Array)
