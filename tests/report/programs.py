"""A small program, written by hand, that shows every class of allocation and every place of a thunk."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from jax_cmdbuf.executable.buffers import Access, BufferAllocation, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Constant, DeviceDescription, Executable, Output
from jax_cmdbuf.executable.thunks import KernelInfo, Thunk, ThunkKind
from jax_cmdbuf.report.model import Plan, PlanContext, make_plan

SNAPSHOTS = Path(__file__).parents[1] / "data" / "report"
DEVICE = DeviceDescription("NVIDIA H200", (13, 0, 0), (13, 0, 0), (13, 0, 0))
SIZE = 1 << 20


def use(allocation: int, access: Access, size: int = SIZE) -> BufferUse:
    return BufferUse(BufferAllocationSlice(allocation, 0, size), access)


def kernel(number: int, name: str, reads: tuple[int, ...], writes: tuple[int, ...]) -> Thunk:
    uses = (*(use(index, Access.READ) for index in reads), *(use(index, Access.WRITE) for index in writes))
    return Thunk(ThunkKind("kCustomKernel"), number, name, uses, info=KernelInfo(name))


def a_program() -> Executable:
    """Five kernels in a command buffer, an FFT and a kernel outside; result 2 is scratch for most of them."""
    allocations = (
        BufferAllocation(
            0, SIZE, parameter_number=0, maybe_live_out=True, is_parameter_aliased_with_output=True
        ),
        BufferAllocation(1, 3 * SIZE, parameter_number=1),
        BufferAllocation(2, SIZE, maybe_live_out=True),
        BufferAllocation(3, 16, maybe_live_out=True, is_tuple=True),
        BufferAllocation(4, 4, is_constant=True),
        BufferAllocation(5, 5 * SIZE),
        BufferAllocation(6, 4, is_thread_local=True),
    )
    thunks = (
        kernel(1, "gemm_fusion", (0, 1), (5,)),
        kernel(2, "loop_fusion", (5, 4), (2,)),
        kernel(3, "loop_fusion.1", (2,), (5,)),
        kernel(4, "loop_fusion.2", (5,), (2,)),
        kernel(5, "update_fusion", (2, 0), (0,)),
        Thunk(ThunkKind("kFft"), 6, "fft", (use(5, Access.READ), use(5, Access.WRITE))),
        kernel(7, "last_fusion", (5,), (2,)),
    )
    return Executable(
        module="jit_step",
        allocations=allocations,
        thunks=thunks,
        debug_options={
            "xla_gpu_enable_command_buffer": ("FUSION",),
            "xla_gpu_graph_min_graph_size": 5,
            "xla_gpu_command_buffer_update_mode": "SKIP_TEMP",
        },
        device=DEVICE,
        outputs=(Output((), 3), Output((0,), 0), Output((1,), 2)),
        parameter_shapes=("f32[512,512]", "f32[1536,512]"),
        parameter_names=("p__w__.1", "x.1"),
        result_shape="(f32[512,512], f32[512,512])",
        constants=(Constant("buffer_for_constant_1", 4),),
        hlo_uses={2: ("loop_fusion", "last_fusion"), 5: ("gemm_fusion", "loop_fusion.1"), 6: ("add",)},
        jaxlib="0.12",
    )


def plan_of(executable: Executable, context: PlanContext | None = None) -> Plan:
    return make_plan(executable, convert(executable), context or CONTEXT)


CONTEXT = PlanContext(
    target="h200",
    gpu="NVIDIA H200",
    arguments=("params['w']", "x"),
    results=("out[0]['w']", "out[1]"),
    xla_flags={
        "xla_gpu_command_buffer_update_mode": "SKIP_TEMP",
        "xla_gpu_enable_command_buffer": ("FUSION",),
    },
    versions={"jax": "0.12.0.1", "jaxlib": "0.12.0.1"},
    notes=("a note",),
)


def printed(show: Callable[[Console], None], width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def check_snapshot(name: str, text: str) -> None:
    """The text is as it was; JAX_CMDBUF_UPDATE_SNAPSHOTS=1 makes it the new expectation."""
    path = SNAPSHOTS / name
    if os.environ.get("JAX_CMDBUF_UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert text == path.read_text()
