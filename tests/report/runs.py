"""Reports of recorded loops, made by the model alone, and small ones written by hand."""

from __future__ import annotations

import dataclasses
import gzip
from functools import cache
from pathlib import Path

from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.report.run_function import function_of_executions
from jax_cmdbuf.report.run_model import DeviceInfo, FunctionRun, ProcessInfo, RunReport
from jax_cmdbuf.runtime.replay import replay
from jax_cmdbuf.runtime.scenario import load_scenario
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor

DATA = Path(__file__).parents[1] / "data" / "va_remap"

BASE = FunctionRun(
    process=0,
    function="step",
    signature=0,
    arguments=("x f32[2]",),
    device=0,
    runtime="simulated",
    target="h200",
    requested="SKIP_PROFILED",
    effective="SKIP_PROFILED",
)

PROCESS = ProcessInfo(
    index=0,
    count=1,
    host="here",
    pid=7,
    platform="cpu",
    devices=(DeviceInfo(0, "cpu"),),
    versions={"jax": "0.12.0.1"},
    command=("train.py", "--fast"),
    outcome="finished",
    detail="",
    status=0,
    began_us=1_000_000.0,
    took_us=2_500_000.0,
)


class Device:
    """A simulated device as a replay needs it."""

    def __init__(self):
        self.executor = SimulatedExecutor()
        self.stream = self.executor.create_stream()
        self.choose_address = self.executor.memory.choose_addresses
        self.verify_aliases = self.stream.check_aliases


@cache
def replayed(name, mode="SKIP_PROFILED"):
    """(replay, conversion) of a recorded loop."""
    folder = DATA / name
    executable = Executable.from_bytes(gzip.decompress((folder / "executable.bin.gz").read_bytes()))
    conversion = convert(executable, device=load_target("h200").device)
    return replay(load_scenario(folder / f"{mode}.json.gz"), executable, conversion, Device()), conversion


def function(name, mode="SKIP_PROFILED", uses=None, **changes):
    """The report of a recorded loop; its calls take 50 us, one every 100 us."""
    made, conversion = replayed(name, mode)
    count = len(made.executions)
    base = dataclasses.replace(BASE, function=name, requested=mode, effective=mode, calls=count, **changes)
    times = [(1_000_000.0 + 100.0 * number, 50.0) for number in range(count)]
    return function_of_executions(base, made.loaded, conversion, made.executions, times, uses)


def report(*functions, **changes):
    """A report of one process."""
    return RunReport((dataclasses.replace(PROCESS, **changes),), functions or (function("two_gemm_drop"),))


def row(made, path):
    """The allocation of that path, or index."""
    (found,) = [each for each in made.allocations if path in (each.path, each.index)]
    return found
