"""The protocols by themselves: what they name, and that a backend with every member is one."""

from __future__ import annotations

import inspect

import pytest

from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.memory import VirtualMemory
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor, SimulatedKernel, SimulatedStream
from jax_cmdbuf.stream_executor.simulated_command_buffer import SimulatedCommandBuffer
from jax_cmdbuf.stream_executor.simulated_memory import SimulatedVirtualMemory

IMPLEMENTATIONS = [
    (se.StreamExecutor, SimulatedExecutor),
    (se.Stream, SimulatedStream),
    (se.CommandBuffer, SimulatedCommandBuffer),
    (se.Kernel, SimulatedKernel),
    (VirtualMemory, SimulatedVirtualMemory),
]


def members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.parametrize(("protocol", "backend"), IMPLEMENTATIONS, ids=lambda each: each.__name__)
def test_a_backend_has_every_member_with_the_protocols_parameters(protocol: type, backend: type) -> None:
    made = backend("kernel") if backend is SimulatedKernel else None
    for name in members(protocol):
        wanted = getattr(protocol, name)
        if inspect.isfunction(wanted):
            given = list(inspect.signature(getattr(backend, name)).parameters)
            required = list(inspect.signature(wanted).parameters)
            assert given[: len(required)] == required, name
        elif made is not None:
            assert hasattr(made, name)


def test_everything_public_is_documented() -> None:
    for protocol, _ in IMPLEMENTATIONS:
        assert all(getattr(protocol, name).__doc__ for name in members(protocol)), protocol


def test_a_command_buffer_has_the_states_of_xla() -> None:
    assert [state.name for state in se.CommandBufferState] == ["CREATE", "UPDATE", "FINALIZED"]


def test_launch_dimensions_default_to_one_thread() -> None:
    dimensions = se.LaunchDimensions()
    assert (dimensions.blocks, dimensions.threads, dimensions.shared_memory_bytes) == (
        (1, 1, 1),
        (1, 1, 1),
        0,
    )
    with pytest.raises(AttributeError):
        dimensions.blocks = (2, 1, 1)  # type: ignore[misc]
