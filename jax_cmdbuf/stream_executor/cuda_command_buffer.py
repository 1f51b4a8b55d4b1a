"""A command buffer as a CUDA graph: recorded once, updated node by node.

Mirrors ``xla/stream_executor/cuda/cuda_command_buffer.cc``. Invariant: the executable graph agrees with the
commands' last parameters, or there is none. A refused update drops it and the next ``finalize`` instantiates
it again from the graph, so that a failed update never leaves a poisoned graph behind.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.cuda_driver import call, current_context, driver
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.interface import (
    CommandBufferState,
    KernelArgument,
    LaunchDimensions,
    TensorMapArgument,
)
from jax_cmdbuf.stream_executor.memory import DriverError

__all__ = ["CudaCommand", "CudaCommandBuffer", "CudaKernel"]


_TENSOR_MAP_BYTES = 128  # sizeof(CUtensorMap)
# Dynamic shared memory, in bytes, that a kernel may use without asking for more.
_DEFAULT_SHARED_MEMORY = 48 << 10


class CudaKernel:
    """A loaded kernel; its module is unloaded when the kernel goes."""

    def __init__(self, name: str, function: Any, module: Any, context: Any) -> None:
        self.name = name
        self.function = function
        self._shared_memory = _DEFAULT_SHARED_MEMORY
        self._release = weakref.finalize(self, _unload, module, context)

    def allow_shared_memory(self, size: int) -> None:
        """Lets launches use ``size`` bytes of dynamic shared memory.

        Raises:
          DriverError: the device has less.
        """
        if size > self._shared_memory:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", self.function, attribute, size)
            self._shared_memory = size

    def close(self) -> None:
        """Unloads the module; more calls do nothing."""
        self._release()


def _unload(module: Any, context: Any) -> None:
    with current_context(context):
        call("cuModuleUnload", module)


@dataclass(eq=False)
class CudaCommand:
    """A node of one graph and the last parameters it was given.

    ``held`` keeps alive what the parameters point to: kernel and argument bytes, or the nested graph.
    """

    node: Any
    parameters: Any
    held: tuple[Any, ...] = field(default=(), repr=False)


class CudaCommandBuffer:
    """``CommandBuffer`` on a CUDA graph."""

    def __init__(self, context: Any) -> None:
        self.state = CommandBufferState.CREATE
        self._context = context
        self._graph = call("cuGraphCreate", 0)
        self._executable: Any | None = None
        self._commands: list[CudaCommand] = []
        self._handles: dict[str, Any] = {"graph": self._graph}
        self._release = weakref.finalize(self, _destroy, self._handles)

    def create_launch(
        self,
        kernel: CudaKernel,
        dimensions: LaunchDimensions,
        arguments: Sequence[KernelArgument],
        dependencies: Sequence[CudaCommand] = (),
    ) -> CudaCommand:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.CREATE)
        parameters, held = self._launch_parameters(kernel, dimensions, arguments)
        nodes = [command.node for command in dependencies]
        node = call("cuGraphAddKernelNode", self._graph, nodes, len(nodes), parameters)
        return self._append(CudaCommand(node, parameters, held))

    def update_launch(
        self,
        command: CudaCommand,
        kernel: CudaKernel,
        dimensions: LaunchDimensions,
        arguments: Sequence[KernelArgument],
    ) -> None:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.UPDATE)
        parameters, held = self._launch_parameters(kernel, dimensions, arguments)
        self._set("KernelNode", command, parameters, held)

    def create_memcpy(
        self, destination: DeviceAddress, source: DeviceAddress, dependencies: Sequence[CudaCommand] = ()
    ) -> CudaCommand:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.CREATE)
        parameters = _memcpy_parameters(destination, source)
        nodes = [command.node for command in dependencies]
        node = call("cuGraphAddMemcpyNode", self._graph, nodes, len(nodes), parameters, self._context)
        return self._append(CudaCommand(node, parameters))

    def update_memcpy(self, command: CudaCommand, destination: DeviceAddress, source: DeviceAddress) -> None:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.UPDATE)
        self._set("MemcpyNode", command, _memcpy_parameters(destination, source), (), self._context)

    def create_memset(
        self, destination: DeviceAddress, pattern: bytes, dependencies: Sequence[CudaCommand] = ()
    ) -> CudaCommand:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.CREATE)
        parameters = _memset_parameters(destination, pattern)
        nodes = [command.node for command in dependencies]
        node = call("cuGraphAddMemsetNode", self._graph, nodes, len(nodes), parameters, self._context)
        return self._append(CudaCommand(node, parameters))

    def update_memset(self, command: CudaCommand, destination: DeviceAddress, pattern: bytes) -> None:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.UPDATE)
        self._set("MemsetNode", command, _memset_parameters(destination, pattern), (), self._context)

    def create_nested(
        self, nested: CudaCommandBuffer, dependencies: Sequence[CudaCommand] = ()
    ) -> CudaCommand:
        """See ``CommandBuffer``; the driver copies the nested graph."""
        self._expect(CommandBufferState.CREATE)
        nested._expect(CommandBufferState.FINALIZED)
        nodes = [command.node for command in dependencies]
        node = call("cuGraphAddChildGraphNode", self._graph, nodes, len(nodes), nested._graph)
        return self._append(CudaCommand(node, nested._graph, (nested,)))

    def update_nested(self, command: CudaCommand, nested: CudaCommandBuffer) -> None:
        """See ``CommandBuffer``; the nested graph must have the same nodes."""
        self._expect(CommandBufferState.UPDATE)
        self._set("ChildGraphNode", command, nested._graph, (nested,))

    def update(self) -> None:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.FINALIZED)
        self.state = CommandBufferState.UPDATE

    def finalize(self) -> None:
        """See ``CommandBuffer``.

        Raises:
          DriverError: the driver cannot instantiate the graph; the state is as before.
        """
        self._expect(CommandBufferState.CREATE, CommandBufferState.UPDATE)
        if self._executable is None:
            with current_context(self._context):
                self._executable = call("cuGraphInstantiate", self._graph, 0)
            self._handles["executable"] = self._executable
        self.state = CommandBufferState.FINALIZED

    def submit(self, stream: Any) -> None:
        """See ``CommandBuffer``; ``stream`` is a ``CudaStream``."""
        self._expect(CommandBufferState.FINALIZED)
        call("cuGraphLaunch", self._executable, stream.handle)

    def close(self) -> None:
        """See ``CommandBuffer``."""
        self._commands.clear()
        self._executable = None
        self._release()

    def _expect(self, *states: CommandBufferState) -> None:
        if not self._release.alive:
            raise StatusError(StatusCode.FAILED_PRECONDITION, "the command buffer is closed")
        if self.state not in states:
            wanted = " or ".join(state.name for state in states)
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"the command buffer is in state {self.state.name}, this call needs {wanted}",
            )

    def _append(self, command: CudaCommand) -> CudaCommand:
        self._commands.append(command)
        return command

    def _launch_parameters(
        self, kernel: CudaKernel, dimensions: LaunchDimensions, arguments: Sequence[KernelArgument]
    ) -> tuple[Any, tuple[Any, ...]]:
        values = [_argument_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        kernel.allow_shared_memory(dimensions.shared_memory_bytes)
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = kernel.function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = dimensions.blocks
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = dimensions.threads
        parameters.sharedMemBytes = dimensions.shared_memory_bytes
        parameters.kernelParams = ctypes.addressof(pointers) if values else 0
        return parameters, (kernel, values, pointers)

    def _set(
        self, kind: str, command: CudaCommand, parameters: Any, held: tuple[Any, ...], *more: Any
    ) -> None:
        """Updates a node in the graph and, if there is one, in the executable graph."""
        if kind != "ChildGraphNode":
            call(f"cuGraph{kind}SetParams", command.node, parameters)
        command.parameters, command.held = parameters, held
        if self._executable is None:
            return
        try:
            call(f"cuGraphExec{kind}SetParams", self._executable, command.node, parameters, *more)
        except DriverError:
            # A half-updated executable graph must never run: the graph itself is right, so build it again.
            self._drop_executable()
            if kind == "ChildGraphNode":
                raise

    def _drop_executable(self) -> None:
        self._executable = None
        driver.cuGraphExecDestroy(self._handles.pop("executable"))


def _destroy(handles: dict[str, Any]) -> None:
    if (executable := handles.pop("executable", None)) is not None:
        driver.cuGraphExecDestroy(executable)
    driver.cuGraphDestroy(handles.pop("graph"))


def _argument_value(argument: KernelArgument) -> Any:
    """The argument's bytes in memory that ctypes owns."""
    if isinstance(argument, DeviceAddress):
        return ctypes.c_uint64(argument.opaque)
    content = _encode(argument) if isinstance(argument, TensorMapArgument) else argument
    return (ctypes.c_char * len(content)).from_buffer_copy(content)


def _encode(argument: TensorMapArgument) -> bytes:
    tensor_map = argument.tensor_map
    encoded = call(
        "cuTensorMapEncodeTiled",
        # The accelerator only moves bytes, so XLA names unsigned types by size.
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_UINT{8 * tensor_map.element_size}"),
        len(tensor_map.global_dims),
        argument.address.opaque,
        [driver.cuuint64_t(value) for value in tensor_map.global_dims],
        [driver.cuuint64_t(value) for value in tensor_map.global_strides],
        [driver.cuuint32_t(value) for value in tensor_map.box_dims],
        [driver.cuuint32_t(value) for value in tensor_map.element_strides],
        driver.CUtensorMapInterleave(tensor_map.interleave),
        driver.CUtensorMapSwizzle(tensor_map.swizzle),
        driver.CUtensorMapL2promotion(tensor_map.l2_promotion),
        driver.CUtensorMapFloatOOBfill(tensor_map.float_oob_fill),
    )
    return ctypes.string_at(encoded.getPtr(), _TENSOR_MAP_BYTES)


def _memcpy_parameters(destination: DeviceAddress, source: DeviceAddress) -> Any:
    parameters = driver.CUDA_MEMCPY3D()
    parameters.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    parameters.srcDevice = source.opaque
    parameters.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    parameters.dstDevice = destination.opaque
    parameters.WidthInBytes = source.size
    parameters.Height = 1
    parameters.Depth = 1
    return parameters


def _memset_parameters(destination: DeviceAddress, pattern: bytes) -> Any:
    if len(pattern) not in (1, 2, 4) or destination.size % len(pattern):
        raise StatusError(
            StatusCode.INVALID_ARGUMENT,
            f"a fill pattern has 1, 2 or 4 bytes and divides the range: got {len(pattern)} for {destination}",
        )
    parameters = driver.CUDA_MEMSET_NODE_PARAMS()
    parameters.dst = destination.opaque
    parameters.elementSize = len(pattern)
    parameters.width = destination.size // len(pattern)
    parameters.height = 1
    parameters.value = int.from_bytes(pattern, "little")
    return parameters
