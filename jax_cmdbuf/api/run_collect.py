"""A recorded run as a report.

Invariant: collecting ends nothing and changes nothing; it starts no backend that the script did not start.
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.native_profile import ObservedProfile
from jax_cmdbuf.api.run_ending import Ending
from jax_cmdbuf.api.run_recorder import RunRecorder
from jax_cmdbuf.api.simulated_runtime import SimulatedProgram
from jax_cmdbuf.executable.targets import DEFAULT_TARGET
from jax_cmdbuf.report.run_function import function_of_executions, function_of_snapshot
from jax_cmdbuf.report.run_model import DeviceInfo, FunctionRun, ProcessInfo, RunReport

__all__ = ["collect_run"]

_PACKAGES = ("jax", "jaxlib", "jax-cmdbuf")


def collect_run(recorder: RunRecorder, ending: Ending) -> RunReport:
    """The report of what was recorded."""
    index, count = _jax.distributed_process()
    started = _jax.backends_started()
    devices = tuple(DeviceInfo(each.id, each.device_kind) for each in jax.local_devices()) if started else ()
    process = ProcessInfo(
        index,
        count,
        socket.gethostname(),
        os.getpid(),
        jax.default_backend() if started else "",
        devices,
        _versions(),
        ending.command,
        ending.outcome,
        ending.detail,
        ending.status,
        ending.began_us,
        ending.took_us,
        recorder.notes,
    )
    functions = (*_simulated(recorder, index), *_native(recorder, index, devices))
    return RunReport((process,), functions)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a checkout
            continue
    return found


def _simulated(recorder: RunRecorder, process: int) -> Iterator[FunctionRun]:
    signatures: Counter[str] = Counter()
    for program in recorder.simulation.programs:
        name = program.observed.name
        signature = signatures[name]
        signatures[name] += 1
        notes = recorder.simulation.notes(program)
        times = [(recorder.epoch_us(began), took / 1000) for began, took in notes.times]
        paths = program.loaded.program.paths
        by_path = notes.uses()
        uses = {index: by_path[path] for index, path in paths.items() if path in by_path}
        for device, executions in sorted(program.executions.items()):
            base = _base_of_simulated(program, process, signature, device)
            yield function_of_executions(
                base, program.loaded, program.plan.conversion, tuple(executions), times, uses
            )


def _base_of_simulated(program: SimulatedProgram, process: int, signature: int, device: int) -> FunctionRun:
    mode = str(program.observed.mode)
    return FunctionRun(
        process=process,
        function=program.observed.name,
        signature=signature,
        arguments=_arguments(program),
        device=device,
        runtime="simulated",
        target=program.observed.target or DEFAULT_TARGET,
        requested=mode,
        effective=mode,
        calls=program.count,
    )


def _arguments(program: SimulatedProgram) -> tuple[str, ...]:
    shapes, paths = program.plan.executable.parameter_shapes, program.loaded.program.paths
    pairs = zip(program.loaded.parameters, shapes, strict=False)
    return tuple(f"{paths.get(index, '')} {_without_layout(shape)}" for index, shape in pairs)


def _without_layout(shape: str) -> str:
    return re.sub(r"\{[^}]*\}", "", shape)


def _native(recorder: RunRecorder, process: int, devices: tuple[DeviceInfo, ...]) -> Iterator[FunctionRun]:
    kinds = {each.id: each.kind for each in devices}
    signatures: Counter[tuple[str, int]] = Counter()
    for profile in recorder.xla.observed():
        key = (profile.function, profile.snapshot.device)
        signature = signatures[key]
        signatures[key] += 1
        notes = recorder.xla.notes(profile.function)
        times = [(recorder.epoch_us(began), took / 1000) for began, took in notes.times]
        base = _base_of_native(profile, process, signature, kinds)
        # Calls are timed by function, and which of several executables they ran is not known.
        is_alone = profile.snapshot.executions == notes.count
        yield function_of_snapshot(
            base,
            profile.snapshot,
            times if is_alone else (),
            profile.compared,
            profile.moves,
            notes.uses(),
        )


def _base_of_native(
    profile: ObservedProfile, process: int, signature: int, kinds: dict[int, str]
) -> FunctionRun:
    status = profile.update_mode
    return FunctionRun(
        process=process,
        function=profile.function,
        signature=signature,
        arguments=tuple(each.path for each in profile.snapshot.allocations if _is_argument(each.path)),
        device=profile.snapshot.device,
        runtime="xla",
        target=kinds.get(profile.snapshot.device, ""),
        requested=status.requested,
        effective=status.effective,
        reason=status.reason,
        remedy=status.remedy,
        calls=profile.snapshot.executions,
        problem=profile.problem,
    )


def _is_argument(path: str) -> bool:
    return bool(path) and not path.startswith(("result[", "constant ")) and path != "temporary"
