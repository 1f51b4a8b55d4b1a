"""The simulated command buffer: remembers what each command uses, and checks it at every submit.

Stands for a CUDA graph. Invariant: commands are created only in CREATE, updated only in UPDATE and submitted
only in FINALIZED; a call in another state raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.interface import (
    Command,
    CommandBuffer,
    CommandBufferState,
    Kernel,
    KernelArgument,
    LaunchDimensions,
    Stream,
    TensorMapArgument,
)

if TYPE_CHECKING:
    from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor

__all__ = ["SimulatedCommand", "SimulatedCommandBuffer"]

MEMSET_PATTERN_BYTES = (1, 2, 4)


class SimulatedCommand:
    """One command: its kind, the addresses it uses, and the buffer nested in it."""

    def __init__(self, owner: SimulatedCommandBuffer, kind: str) -> None:
        self.owner = owner
        self.kind = kind
        self.addresses: tuple[DeviceAddress, ...] = ()
        self.nested: SimulatedCommandBuffer | None = None


class SimulatedCommandBuffer:
    """``CommandBuffer`` of a simulated device.

    Attributes:
      commands: in the order of their creation.
    """

    def __init__(self, executor: SimulatedExecutor) -> None:
        self._executor = executor
        self._state = CommandBufferState.CREATE
        self._closed = False
        self.commands: list[SimulatedCommand] = []

    @property
    def state(self) -> CommandBufferState:
        """See ``CommandBuffer``."""
        return self._state

    def create_launch(
        self,
        kernel: Kernel,
        dimensions: LaunchDimensions,
        arguments: Sequence[KernelArgument],
        dependencies: Sequence[Command] = (),
    ) -> SimulatedCommand:
        """See ``CommandBuffer``."""
        return self._create("launch", _pointers(arguments), dependencies)

    def update_launch(
        self,
        command: Command,
        kernel: Kernel,
        dimensions: LaunchDimensions,
        arguments: Sequence[KernelArgument],
    ) -> None:
        """See ``CommandBuffer``."""
        self._update(command, "launch").addresses = _pointers(arguments)

    def create_memcpy(
        self, destination: DeviceAddress, source: DeviceAddress, dependencies: Sequence[Command] = ()
    ) -> SimulatedCommand:
        """See ``CommandBuffer``."""
        return self._create("memcpy", _copied(destination, source), dependencies)

    def update_memcpy(self, command: Command, destination: DeviceAddress, source: DeviceAddress) -> None:
        """See ``CommandBuffer``."""
        self._update(command, "memcpy").addresses = _copied(destination, source)

    def create_memset(
        self, destination: DeviceAddress, pattern: bytes, dependencies: Sequence[Command] = ()
    ) -> SimulatedCommand:
        """See ``CommandBuffer``."""
        return self._create("memset", _filled(destination, pattern), dependencies)

    def update_memset(self, command: Command, destination: DeviceAddress, pattern: bytes) -> None:
        """See ``CommandBuffer``."""
        self._update(command, "memset").addresses = _filled(destination, pattern)

    def create_nested(self, nested: CommandBuffer, dependencies: Sequence[Command] = ()) -> SimulatedCommand:
        """See ``CommandBuffer``."""
        checked = self._nestable(nested)
        command = self._create("nested", (), dependencies)
        command.nested = checked
        return command

    def update_nested(self, command: Command, nested: CommandBuffer) -> None:
        """See ``CommandBuffer``."""
        checked = self._nestable(nested)
        self._update(command, "nested").nested = checked

    def update(self) -> None:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.FINALIZED)
        self._executor.driver.enter("cuGraphUpdate")
        self._state = CommandBufferState.UPDATE

    def finalize(self) -> None:
        """See ``CommandBuffer``."""
        self._expect(CommandBufferState.CREATE, CommandBufferState.UPDATE)
        if self._state is CommandBufferState.CREATE:
            self._executor.driver.enter("cuGraphInstantiate")
        self._state = CommandBufferState.FINALIZED

    def submit(self, stream: Stream) -> None:
        """See ``CommandBuffer``. Raises CUDA_ERROR_ILLEGAL_ADDRESS for memory the device may not use."""
        self._expect(CommandBufferState.FINALIZED)
        if stream.executor is not self._executor:
            raise StatusError(StatusCode.INVALID_ARGUMENT, "the stream belongs to another device")
        self._executor.driver.enter("cuGraphLaunch")
        stream.submit(self._addresses(), label="command buffer")  # type: ignore[attr-defined]

    def close(self) -> None:
        """See ``CommandBuffer``."""
        if not self._closed:
            self._closed = True
            self.commands.clear()

    def _create(
        self, kind: str, addresses: tuple[DeviceAddress, ...], dependencies: Sequence[Command]
    ) -> SimulatedCommand:
        self._expect(CommandBufferState.CREATE)
        for dependency in dependencies:
            self._own(dependency)
        self._executor.driver.enter("cuGraphAddNode")
        command = SimulatedCommand(self, kind)
        command.addresses = addresses
        self.commands.append(command)
        return command

    def _update(self, command: Command, kind: str) -> SimulatedCommand:
        self._expect(CommandBufferState.UPDATE)
        own = self._own(command)
        if own.kind != kind:
            raise StatusError(StatusCode.INVALID_ARGUMENT, f"the command is a {own.kind}, not a {kind}")
        self._executor.driver.enter("cuGraphExecNodeSetParams")
        return own

    def _own(self, command: Command) -> SimulatedCommand:
        if not isinstance(command, SimulatedCommand) or command.owner is not self:
            raise StatusError(StatusCode.INVALID_ARGUMENT, "the command belongs to another command buffer")
        return command

    def _nestable(self, nested: CommandBuffer) -> SimulatedCommandBuffer:
        if not isinstance(nested, SimulatedCommandBuffer) or nested is self:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT, "only another command buffer of this kind can nest"
            )
        nested._expect(CommandBufferState.FINALIZED)
        return nested

    def _expect(self, *states: CommandBufferState) -> None:
        if self._closed or self._state not in states:
            wanted = " or ".join(state.name for state in states)
            found = "closed" if self._closed else self._state.name
            raise StatusError(
                StatusCode.FAILED_PRECONDITION, f"the command buffer must be in state {wanted} and is {found}"
            )

    def _addresses(self) -> Iterator[DeviceAddress]:
        for command in self.commands:
            yield from command.addresses
            if command.nested is not None:
                yield from command.nested._addresses()


def _pointers(arguments: Sequence[KernelArgument]) -> tuple[DeviceAddress, ...]:
    return tuple(
        argument.address if isinstance(argument, TensorMapArgument) else argument
        for argument in arguments
        if not isinstance(argument, bytes)
    )


def _copied(destination: DeviceAddress, source: DeviceAddress) -> tuple[DeviceAddress, ...]:
    if destination.size < source.size:
        raise StatusError(StatusCode.INVALID_ARGUMENT, f"{source} does not fit into {destination}")
    return (destination.slice(0, source.size), source)


def _filled(destination: DeviceAddress, pattern: bytes) -> tuple[DeviceAddress, ...]:
    if len(pattern) not in MEMSET_PATTERN_BYTES or destination.size % len(pattern):
        raise StatusError(
            StatusCode.INVALID_ARGUMENT, f"no pattern of {len(pattern)} bytes fills {destination}"
        )
    return (destination,)
