"""Profiles observed from recorded addresses against what XLA itself logged; counting, threads, collection."""

from __future__ import annotations

import gc
import gzip
import json
import threading
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jax_cmdbuf.api.address_reader import AddressReader
from jax_cmdbuf.api.native_mode import UpdateModeStatus
from jax_cmdbuf.api.native_plan import Signature
from jax_cmdbuf.api.native_profile import ObservedProgram, XlaAllocator
from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.scenario import load_scenario, match_in_order
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot
from xla_flags.options import CommandBufferUpdateMode

DATA = Path(__file__).parents[1] / "data" / "va_remap"
RECORDED = sorted(path.parent.name for path in DATA.glob("*/SKIP_PROFILED.json.gz"))
MODES = list(map(CommandBufferUpdateMode, ("ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED")))
PROFILED = MODES[-1]


@cache
def executable_of(name: str) -> Executable:
    return Executable.from_bytes(gzip.decompress((DATA / name / "executable.bin.gz").read_bytes()))


def signature(kept: tuple[int, ...], count: int) -> Signature:
    device = SimpleNamespace(device_kind="NVIDIA H200")
    compiled = SimpleNamespace(runtime_executable=lambda: SimpleNamespace(local_devices=lambda: [device]))
    lowered = SimpleNamespace(_lowering=SimpleNamespace(compile_args={"kept_var_idx": set(kept)}))
    return Signature(lowered, compiled, tuple(f"a{i}" for i in range(count)), tuple(range(count)))


def observed(
    name: str, mode: CommandBufferUpdateMode = PROFILED, *, devices: tuple[int, ...] = (0,), vmm: bool = True
) -> ObservedProgram:
    """A program of a recorded scenario, identified and not called yet."""
    executable = executable_of(name)
    scenario = load_scenario(DATA / name / f"{mode}.json.gz")
    have, wanted = scenario.argument_shapes, executable.parameter_shapes
    kept = match_in_order(have, wanted) or tuple(range(len(wanted)))
    program = ObservedProgram(
        name,
        mode,
        UpdateModeStatus(mode, mode),
        ProfileRegistry(),
        lambda compiled: executable,
        XlaAllocator(vmm),
    )
    program.identify(signature(kept, max(len(have), len(wanted))), AddressReader(), devices)
    return program


def call(
    program: ObservedProgram, arguments: list[int], results: list[int], error: str | None = None
) -> None:
    """What the runtime does in a call."""
    if len(program.trail) >= program.limit:
        program.settle()
    if error:
        program.failed()
    else:
        program.trail.append((program.reader, [*arguments], [*results]))


def snapshot_of(program: ObservedProgram) -> RemappingSnapshot:
    return program.profiles()[0].snapshot


@pytest.mark.parametrize("name", [name for name in RECORDED if name != "threads"])
def test_the_observed_profile_is_xlas_own_where_that_is_recorded(name: str) -> None:
    trace = json.loads(gzip.decompress((DATA / name / "SKIP_PROFILED.json.gz").read_bytes()))
    program = observed(name)
    steps = []
    for execution in trace["executions"]:
        if len(program.trail) >= program.limit:
            program.settle()
        results = execution["output_addresses"]
        if program.is_decided and results is not None:
            # After the transition only the tracked leaves are read; moves are tested elsewhere.
            program.trail.append((AddressReader(), [], []))
        else:
            call(program, execution["input_addresses"], results or [], execution["error"])
        steps.append([event for event in execution["events"] if event["kind"] == "profile_step"])
    recorded = [event for execution in trace["executions"] for event in execution["events"]]
    snapshot = snapshot_of(program)
    transitions = [event for event in recorded if event["kind"] == "transition_active"]
    reasons = {state.allocation: state.reason for state in snapshot.allocations}
    if transitions:
        (transition,) = transitions
        candidates = [state for state in snapshot.allocations if state.role == "candidate"]
        chosen = [state for state in candidates if state.state == "remapped"]
        automatic = [state for state in snapshot.allocations if state.role == "remapped"]
        assert snapshot.phase == "active"
        assert (len(automatic), len(chosen), len(candidates)) == (
            transition["automatic"],
            transition["selected"],
            transition["candidates"],
        )
    assert snapshot.steps == sum(map(len, steps))
    for kind, text in (("not_vmm_backed", "not one that the VMM"), ("shared_buffer", "same buffer")):
        wanted = {event["allocation"] for event in recorded if event["kind"] == kind}
        assert {index for index, reason in reasons.items() if text in reason} == wanted


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_counts_and_compares(mode: CommandBufferUpdateMode) -> None:
    program = observed("two_gemm_hold", mode)
    place = 2 << 20
    arguments = [place, 2 * place, 3 * place]
    for number in range(5):
        call(program, arguments, [4 * place + number % 2 * place])
    (profile,) = program.profiles()
    assert profile.snapshot.executions == 5
    assert profile.snapshot.mode == mode.name
    assert (profile.compared, profile.problem) == (2, "")
    result = next(iter(executable_of("two_gemm_hold").result_allocations))
    assert {index: count for index, count in profile.moves.items() if count} == {result: 2}
    assert profile.snapshot.phase == ("disabled" if mode is MODES[0] else "active")
    assert profile.snapshot.limit == (3 if mode is PROFILED else 0)


def test_a_profile_is_asked_for_before_it_is_decided() -> None:
    program = observed("two_gemm_hold")
    assert snapshot_of(program).allocations == ()
    call(program, [1, 2, 3], [4])
    assert (snapshot_of(program).steps, snapshot_of(program).allocations) == (1, ())  # one call tells nothing
    call(program, [1, 2, 3], [4])
    for _ in range(2):
        assert snapshot_of(program).steps == 2
        assert {state.state for state in snapshot_of(program).allocations} >= {"profiling"}
    call(program, [1, 2, 3], [4])
    assert snapshot_of(program).phase == "profiling"
    call(program, [1, 2, 3], [4])
    assert (snapshot_of(program).steps, snapshot_of(program).executions) == (3, 4)
    assert snapshot_of(program).phase == "active"


def test_what_was_not_seen_each_time_is_not_judged() -> None:
    program = observed("two_gemm_hold")
    place = 2 << 20
    for number in range(4):
        call(program, [place, 2 * place, 3 * place if number else None], [4 * place])  # type: ignore[list-item]
    states = {state.path: state for state in snapshot_of(program).allocations}
    assert states["a2"].reason == "it was never observed"
    assert states["a2"].state == "rejected"
    assert states["a0"].state == states["a1"].state == "remapped"


def test_without_the_vmm_allocator_every_address_counts_as_its_own() -> None:
    for vmm, state in ((True, "rejected"), (False, "remapped")):
        program = observed("two_gemm_hold", vmm=vmm)
        for _ in range(4):
            call(program, [256, 512, 768], [1024])
        states = {each.path: each.state for each in snapshot_of(program).allocations}
        assert states["a0"] == state


def test_every_device_has_a_profile() -> None:
    program = observed("two_gemm_hold", devices=(4, 7))
    place = 2 << 20
    for number in range(4):
        moving = (5 + number) * place
        call(program, [place, 2 * place, 3 * place, place, 2 * place, moving], [4 * place, 4 * place])
    one, other = (profile.snapshot for profile in program.profiles())
    assert (one.device, other.device) == (4, 7)
    assert [len(each.selected) for each in (one, other)] == [5, 4]
    assert next(each.reason for each in other.allocations if each.path == "a2").endswith("it was observed")


def test_a_plan_that_cannot_be_had_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    program = observed("two_gemm_hold")

    def read(compiled: Any) -> Executable:
        raise InputError("there is no executable")

    program._read_executable = read
    for _ in range(80):
        call(program, [1, 2, 3], [4])
    (profile,) = program.profiles()
    assert profile.problem == "there is no executable"
    assert (profile.snapshot.executions, profile.snapshot.allocations) == (80, ())
    assert caplog.messages == ["two_gemm_hold runs, but its profile is not kept: there is no executable"]


def test_an_executable_of_other_arguments_is_no_plan() -> None:
    program = observed("two_gemm_hold")
    program._read_executable = lambda compiled: executable_of("mlp_same")
    for _ in range(4):
        call(program, [1, 2, 3], [4])
    assert "takes 9 arrays, but JAX passes 3" in program.profiles()[0].problem


def test_after_the_decision_calls_are_read_in_bursts() -> None:
    program = observed("two_gemm_hold")
    place = 2 << 20
    read = []
    for number in range(900):
        if len(program.trail) >= program.limit:
            program.settle()
        reader = program.reader
        read.append(reader is not None)
        before = [place, 2 * place, 3 * place] if read[-1] else []
        program.trail.append((reader, before, [(4 + number % 2) * place] if read[-1] else []))
    (profile,) = program.profiles()
    assert profile.snapshot.executions == 900
    assert all(read[: 3 + 64])
    for start in (67, 323, 579):
        assert read[start : start + 256] == [False] * 240 + [True] * 16
    assert profile.compared == sum(read) - 3
    result = next(iter(executable_of("two_gemm_hold").result_allocations))
    # The first of a burst is compared with the last that was read, which lay at the same place here or not.
    assert profile.compared - 6 < profile.moves[result] <= profile.compared


def test_threads_lose_no_call() -> None:
    program = observed("two_gemm_hold")
    place = 2 << 20
    ready = threading.Barrier(100)

    def work() -> None:
        ready.wait()
        for _ in range(50):
            call(program, [place, 2 * place, 3 * place], [4 * place])

    threads = [threading.Thread(target=work) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert snapshot_of(program).executions == 5000
    assert (snapshot_of(program).steps, snapshot_of(program).phase) == (3, "active")


def test_a_closed_program_leaves_the_registry() -> None:
    program = observed("two_gemm_hold")
    for _ in range(4):
        call(program, [1, 2, 3], [4])
    registry = program._registry
    assert len(registry.snapshots()) == len(program.profiles()) == 1
    program.close()
    gc.collect()
    assert registry.snapshots() == ()
