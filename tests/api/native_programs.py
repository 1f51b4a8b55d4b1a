"""GPU executables made up for functions that run on the CPU, to try the native runtime there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jax_cmdbuf.executable.buffers import Access, BufferAllocation, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.executable import DeviceDescription, Executable, Output
from jax_cmdbuf.executable.thunks import Thunk, ThunkKind

SIZE = 64


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
