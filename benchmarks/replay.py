"""How fast the machinery simulates executions, and how its overhead grows with the number of changed
addresses.

One program with 100 command-buffer allocations (90 parameters, 9 results, 1 temporary) and 100 kernels runs
under SKIP_PROFILED on the simulated device; times are of the processor, so one core. After the transition, k
of its parameters get another buffer in every execution. Prints the curve; exits with 1 when the unchanged
loop is slower than the target.

    PYTHONPATH=.:flags python benchmarks/replay.py [--seconds 1.0] [--target 50000]
"""

from __future__ import annotations

import argparse
import sys
import time

from jax_cmdbuf.events import NO_SINK
from jax_cmdbuf.executable.buffers import Access, BufferAllocation, BufferAllocationSlice, BufferUse
from jax_cmdbuf.executable.conversion import CommandBuffer, Conversion
from jax_cmdbuf.executable.executable import Executable, Output
from jax_cmdbuf.executable.thunks import Thunk, ThunkKind
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from xla_flags.options import CommandBufferUpdateMode

PARAMETERS, RESULTS = 90, 9
SIZE = 65536
CHANGED = (0, 1, 2, 5, 10, 20, 45, 90)


def program() -> tuple[Executable, Conversion]:
    allocations = [BufferAllocation(i, SIZE, parameter_number=i) for i in range(PARAMETERS)]
    allocations += [BufferAllocation(PARAMETERS + i, SIZE, maybe_live_out=True) for i in range(RESULTS)]
    temp = PARAMETERS + RESULTS
    # Larger than one granule: a smaller one would swap its memory with the results, which then move.
    allocations.append(BufferAllocation(temp, 4 << 20))

    def use(index: int, access: Access) -> BufferUse:
        return BufferUse(BufferAllocationSlice(index, 0, SIZE), access)

    thunks = tuple(
        Thunk(
            ThunkKind("kCustomKernel"),
            i,
            f"fusion.{i}",
            (use(i % PARAMETERS, Access.READ), use(temp, Access.READ), use(target, Access.WRITE)),
        )
        for i in range(PARAMETERS + RESULTS + 1)
        for target in (PARAMETERS + i % RESULTS,)
    )
    used = frozenset(range(temp + 1))
    buffer = Thunk(ThunkKind("kCommandBuffer"), -1, "command_buffer_0", (), (thunks,))
    outputs = tuple(Output((i,), PARAMETERS + i) for i in range(RESULTS))
    executable = Executable("jit_benchmark", tuple(allocations), thunks, outputs=outputs)
    return executable, Conversion((buffer,), (CommandBuffer(thunks, (), used),))


class Loop:
    """The program, its parameters, and a spare buffer for each of them."""

    def __init__(self) -> None:
        executor = SimulatedExecutor()
        stream = executor.create_stream()
        self.allocator = DeviceAddressVmmAllocator([DeviceConfig(stream)])
        self.registry = ProfileRegistry()
        self.loaded = GpuExecutable(*program(), CommandBufferUpdateMode.SKIP_PROFILED, self.registry)
        self.options = RunOptions(self.allocator, stream, NO_SINK)
        self.parameters = [self.allocator.allocate(0, SIZE) for _ in range(PARAMETERS)]
        self.spare = [self.allocator.allocate(0, SIZE) for _ in range(PARAMETERS)]

    def step(self, parameters: list[DeviceAddress]) -> None:
        for output in self.loaded.execute(self.options, parameters).outputs:
            self.allocator.deallocate(0, output)

    def seconds_per_execution(self, changed: int, seconds: float) -> float:
        tables = [self.parameters, [*self.spare[:changed], *self.parameters[changed:]]]
        for i in range(8):
            self.step(tables[i % 2 if i > 4 else 0])
        # The fastest batch: others share the machine.
        best, end = float("inf"), time.process_time() + seconds
        while (start := time.process_time()) < end:
            for table in tables * 8:
                self.step(table)
            best = min(best, (time.process_time() - start) / 16)
        return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="how long to measure each point")
    parser.add_argument("--target", type=int, default=50_000, help="executions per minute to reach")
    arguments = parser.parse_args()
    print(f"{'changed':>8} {'us/execution':>13} {'executions/min':>15}")
    rate = 0.0
    for changed in CHANGED:
        cost = Loop().seconds_per_execution(changed, arguments.seconds)
        rate = rate or 60 / cost
        print(f"{changed:>8} {cost * 1e6:>13.1f} {60 / cost:>15,.0f}")
    print(f"unchanged: {rate:,.0f} executions/min, target {arguments.target:,}")
    return 0 if rate >= arguments.target else 1


if __name__ == "__main__":
    sys.exit(main())
