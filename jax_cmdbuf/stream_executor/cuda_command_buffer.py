"""A command buffer as a CUDA graph: recorded once, updated node by node.

Mirrors ``xla/stream_executor/cuda/cuda_command_buffer.cc``. Invariant: the executable graph agrees with the
commands' last parameters, or there is none. A refused update drops it and the next ``finalize`` instantiates
it again, so that a failed update never leaves a poisoned graph behind. The graph itself is brought up to date
only when somebody reads it, which saves a driver call per update.
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
# Nodes of these kinds are told their context.
_IN_A_CONTEXT = frozenset({"MemcpyNode", "MemsetNode"})
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

    ``held`` keeps alive what the parameters point to: the nested graph, or a launch and its argument bytes.
    A copy of nothing has an empty node, which takes no parameters.
    """

    kind: str
    node: Any
    parameters: Any
    held: Any = field(default=None, repr=False)


class _Launch:
    """A launch's parameters, with the arguments in memory that the driver reads at each call."""

    __slots__ = ("dimensions", "kernel", "parameters", "pointers", "values")

    def __init__(
        self, kernel: CudaKernel, dimensions: LaunchDimensions, arguments: Sequence[KernelArgument]
    ) -> None:
        self.kernel, self.dimensions = kernel, dimensions
        self.values = [_argument_value(argument) for argument in arguments]
        self.pointers = (ctypes.c_void_p * len(self.values))(*map(ctypes.addressof, self.values))
        kernel.allow_shared_memory(dimensions.shared_memory_bytes)
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = kernel.function
        parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ = dimensions.blocks
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = dimensions.threads
        parameters.sharedMemBytes = dimensions.shared_memory_bytes
        parameters.kernelParams = ctypes.addressof(self.pointers) if self.values else 0
        self.parameters = parameters

    def take(
        self, kernel: CudaKernel, dimensions: LaunchDimensions, arguments: Sequence[KernelArgument]
    ) -> bool:
        """Writes new addresses into place; False where more than addresses is new."""
        if kernel is not self.kernel or dimensions is not self.dimensions:
            return False
        if len(arguments) != len(self.values):
            return False
        for value, argument in zip(self.values, arguments, strict=True):
            if type(argument) is not DeviceAddress or type(value) is not ctypes.c_uint64:
                return False
            value.value = argument.opaque
        return True


class CudaCommandBuffer:
    """``CommandBuffer`` on a CUDA graph."""

    def __init__(self, context: Any) -> None:
        self.state = CommandBufferState.CREATE
        self._context = context
        self._graph = call("cuGraphCreate", 0)
        self._executable: Any | None = None
        self._commands: list[CudaCommand] = []
        # Commands whose node in the graph is behind, by id.
        self._stale: dict[int, CudaCommand] = {}
        # Commands whose nested graph is another than the graph's copy.
        self._exchanged: dict[int, CudaCommand] = {}
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
        launch = _Launch(kernel, dimensions, arguments)
        return self._create("KernelNode", launch.parameters, dependencies, launch)

    def update_launch(
        self,
        command: CudaCommand,
        kernel: CudaKernel,
        dimensions: LaunchDimensions,
        arguments: Sequence[KernelArgument],
    ) -> None:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.UPDATE)
        launch = command.held
        if not launch.take(kernel, dimensions, arguments):
            launch = _Launch(kernel, dimensions, arguments)
        self._set(command, launch.parameters, launch)

    def create_memcpy(
        self, destination: DeviceAddress, source: DeviceAddress, dependencies: Sequence[CudaCommand] = ()
    ) -> CudaCommand:
        """See ``CommandBuffer``."""
        if not source.size:
            return self._create_empty(dependencies)
        return self._create("MemcpyNode", _memcpy_parameters(destination, source), dependencies)

    def update_memcpy(self, command: CudaCommand, destination: DeviceAddress, source: DeviceAddress) -> None:
        """See ``CommandBuffer``; the size stays nothing or something."""
        self._expect(CommandBufferState.UPDATE)
        if command.parameters is not None:
            self._set(command, _memcpy_parameters(destination, source))

    def create_memset(
        self, destination: DeviceAddress, pattern: bytes, dependencies: Sequence[CudaCommand] = ()
    ) -> CudaCommand:
        """See ``CommandBuffer``."""
        parameters = _memset_parameters(destination, pattern)
        if not destination.size:
            return self._create_empty(dependencies)
        return self._create("MemsetNode", parameters, dependencies)

    def update_memset(self, command: CudaCommand, destination: DeviceAddress, pattern: bytes) -> None:
        """See ``CommandBuffer``; the size stays nothing or something."""
        self._expect(CommandBufferState.UPDATE)
        if command.parameters is not None:
            self._set(command, _memset_parameters(destination, pattern))

    def create_nested(
        self, nested: CudaCommandBuffer, dependencies: Sequence[CudaCommand] = ()
    ) -> CudaCommand:
        """See ``CommandBuffer``; the driver copies the nested graph."""
        self._expect(CommandBufferState.CREATE)
        return self._create("ChildGraphNode", nested._nestable_graph(), dependencies, nested)

    def update_nested(self, command: CudaCommand, nested: CudaCommandBuffer) -> None:
        """See ``CommandBuffer``; the nested graph must have the same nodes."""
        self._expect(CommandBufferState.UPDATE)
        self._set(command, nested._nestable_graph(), nested)

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
            graph = self._current_graph()
            with current_context(self._context):
                self._executable = call("cuGraphInstantiate", graph, 0)
            for command in self._exchanged.values():
                call("cuGraphExecChildGraphNodeSetParams", self._executable, command.node, command.parameters)
            self._handles["executable"] = self._executable
        self.state = CommandBufferState.FINALIZED

    def submit(self, stream: Any) -> None:
        """See ``CommandBuffer``; ``stream`` is a ``CudaStream``."""
        self._expect(CommandBufferState.FINALIZED)
        call("cuGraphLaunch", self._executable, stream.handle)

    def close(self) -> None:
        """See ``CommandBuffer``."""
        self._commands.clear()
        self._stale.clear()
        self._exchanged.clear()
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

    def _create(
        self, kind: str, parameters: Any, dependencies: Sequence[CudaCommand], held: Any = None
    ) -> CudaCommand:
        self._expect(CommandBufferState.CREATE)
        nodes = [command.node for command in dependencies]
        more = (self._context,) if kind in _IN_A_CONTEXT else ()
        node = call(f"cuGraphAdd{kind}", self._graph, nodes, len(nodes), parameters, *more)
        self._commands.append(CudaCommand(kind, node, parameters, held))
        return self._commands[-1]

    def _create_empty(self, dependencies: Sequence[CudaCommand]) -> CudaCommand:
        self._expect(CommandBufferState.CREATE)
        nodes = [command.node for command in dependencies]
        self._commands.append(
            CudaCommand("EmptyNode", call("cuGraphAddEmptyNode", self._graph, nodes, len(nodes)), None)
        )
        return self._commands[-1]

    def _set(self, command: CudaCommand, parameters: Any, held: Any = None) -> None:
        """Updates a node of the executable graph, if there is one; the graph's own is left for later."""
        kind = command.kind
        command.parameters, command.held = parameters, held
        self._stale[id(command)] = command
        if self._executable is None:
            return
        more = (self._context,) if kind in _IN_A_CONTEXT else ()
        try:
            call(f"cuGraphExec{kind}SetParams", self._executable, command.node, parameters, *more)
        except DriverError:
            # A half-updated executable graph must never run: the commands know what is right, so it is built
            # again.
            self._drop_executable()
            if kind == "ChildGraphNode":
                raise

    def _current_graph(self) -> Any:
        """The graph, its nodes brought up to the commands' parameters."""
        while self._stale:
            _, command = self._stale.popitem()
            if command.kind == "ChildGraphNode":
                # The graph has its own copy of the nested one and no way to exchange it.
                self._exchanged[id(command)] = command
            else:
                call(f"cuGraph{command.kind}SetParams", command.node, command.parameters)
        return self._graph

    def _nestable_graph(self) -> Any:
        self._expect(CommandBufferState.FINALIZED)
        graph = self._current_graph()
        if self._exchanged:
            raise StatusError(
                StatusCode.UNIMPLEMENTED, "a command buffer with an updated one inside is nested"
            )
        return graph

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
