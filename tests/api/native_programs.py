"""The native runtime on a CPU: XLA runs the functions, and made-up executables stand for the GPU's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jax_cmdbuf.api.decorator import CommandBufferFunction, command_buffer
from jax_cmdbuf.api.native_mode import NativeClient
from jax_cmdbuf.api.native_profile import ObservedProfile
from jax_cmdbuf.api.xla_runtime import XlaRuntime
from jax_cmdbuf.executable.buffers import Access, BufferAllocation, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.executable import DeviceDescription, Executable, Output
from jax_cmdbuf.executable.thunks import Thunk, ThunkKind
from xla_flags.options import CommandBufferUpdateMode

SIZE = 64
PROFILED = CommandBufferUpdateMode.SKIP_PROFILED
MODES = frozenset({"ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED"})


def pretend(compiled: Any, aliased: Sequence[tuple[int, int]] = ()) -> Executable:
    """An executable with the parameters and results of what JAX compiled, and one temporary.

    Args:
      compiled: the stage.
      aliased: (parameter, result) that share an allocation.
    """
    takes = len([each for each in jax.tree.leaves(compiled.input_shardings) if each is not None])
    gives = len(jax.tree.leaves(compiled.output_shardings))
    of_result = {result: parameter for parameter, result in aliased}
    donated = set(of_result.values())
    allocations = [
        BufferAllocation(
            number,
            SIZE,
            parameter_number=number,
            maybe_live_out=number in donated,
            is_parameter_aliased_with_output=number in donated,
        )
        for number in range(takes)
    ]
    outputs = []
    for result in range(gives):
        if result not in of_result:
            allocations.append(BufferAllocation(len(allocations), SIZE, maybe_live_out=True))
        index = of_result.get(result, len(allocations) - 1)
        outputs.append(Output((result,) if gives > 1 else (), index))
    allocations.append(BufferAllocation(len(allocations), SIZE))
    uses = tuple(
        BufferUse(
            BufferAllocationSlice(each.index, 0, SIZE), Access.READ if each.index < takes else Access.WRITE
        )
        for each in allocations
    )
    thunks = tuple(Thunk(ThunkKind("kKernel"), number, f"fusion.{number}", uses) for number in range(6))
    return Executable(
        "jit_pretended",
        tuple(allocations),
        thunks,
        debug_options={"xla_gpu_enable_command_buffer": ("FUSION",), "xla_gpu_graph_min_graph_size": 1},
        device=DeviceDescription("pretended", (12, 9, 0), (12, 9, 0), (12, 9, 0)),
        outputs=tuple(outputs),
    )


def native_runtime(vmm: bool = False) -> XlaRuntime:
    """One whose process has SKIP_PROFILED; not ``vmm``: any address will do, as a CPU's lie anywhere."""
    runtime = XlaRuntime(NativeClient("gpu", "test", MODES, PROFILED, "vmm"), pretend)
    runtime._allocator._is_vmm = vmm
    return runtime


def decorated(function: Any, mode: str = "SKIP_PROFILED", **options: Any) -> CommandBufferFunction[..., Any]:
    """A decorated function that has not been called."""
    return command_buffer(function, update_mode=mode, **options)


def attach(runtime: XlaRuntime, function: Any, **options: Any) -> Any:
    """What a decorated function calls under ``runtime``."""
    return runtime.attach(decorated(function, **options))


def only(runtime: XlaRuntime) -> ObservedProfile:
    """The one profile there is."""
    (profile,) = runtime.observed()
    return profile


def x(size: int = 4) -> jax.Array:
    """A new array: 0, 1, 2..."""
    return jnp.arange(size, dtype=jnp.float32)
