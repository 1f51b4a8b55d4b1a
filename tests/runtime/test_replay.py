"""Replaying: inputs in, predicted events out, on a device that checks every address."""

from __future__ import annotations

import dataclasses
import gzip
from functools import cache
from pathlib import Path

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.runtime.guard import FIDELITY, Guarded
from jax_cmdbuf.runtime.replay import replay
from jax_cmdbuf.runtime.scenario import ExecutionInputs, load_scenario
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor

DATA = Path(__file__).parents[1] / "data" / "va_remap"


class Device:
    """A simulated device as a replay needs it."""

    def __init__(self):
        self.executor = SimulatedExecutor()
        self.stream = self.executor.create_stream()
        self.choose_address = self.executor.memory.choose_addresses
        self.verify_aliases = self.stream.check_aliases


@cache
def program(name):
    executable = Executable.from_bytes(gzip.decompress((DATA / name / "executable.bin.gz").read_bytes()))
    return executable, convert(executable, device=load_target("h200").device)


def run(name, mode="SKIP_PROFILED", guard=FIDELITY, change=lambda scenario: scenario, device=None):
    scenario = change(load_scenario(DATA / name / f"{mode}.json.gz"))
    return replay(scenario, *program(name), device or Device(), guard)


def kinds(execution):
    return [event.kind for event in execution.events if event.kind not in ("allocate", "deallocate")]


def test_recorded_events_are_not_read():
    def without_events(scenario):
        return dataclasses.replace(scenario, recorded=((),) * len(scenario.executions))

    assert run("mlp_same", change=without_events).to_json() == run("mlp_same").to_json()


def test_the_device_is_empty_afterwards_and_nothing_was_left_unchecked():
    device = Device()
    run("train_hostbatch", device=device)
    assert device.executor.memory.is_empty
    assert device.executor.fault is None


def test_predictions_follow_the_addresses_they_are_given():
    """With one parameter moved during profiling, it is not selected and its commands are updated."""

    def moved(scenario):
        first = scenario.executions[0]
        elsewhere = (first.parameters[0] + (1 << 40), *first.parameters[1:])
        changed = dataclasses.replace(first, parameters=elsewhere)
        return dataclasses.replace(scenario, executions=(changed, *scenario.executions[1:]))

    as_recorded, with_move = run("two_gemm_drop"), run("two_gemm_drop", change=moved)
    assert as_recorded.executions[3].events[0].selected == 3
    assert with_move.executions[3].events[0].selected == 2


def test_guarded_the_shared_parameter_runs_on():
    replayed = run("shared_param_late", guard=Guarded())
    assert not any("error" in kinds(execution) for execution in replayed.executions)
    demotions = [
        event for execution in replayed.executions for event in execution.events if event.kind == "demote"
    ]
    assert len(demotions) == 1
    assert replayed.executions[-1].snapshot.demotions[0].allocation == demotions[0].allocation
    assert "execute_command_buffer" in kinds(replayed.executions[-1])


@pytest.mark.parametrize(
    "name", ["two_gemm_drop", "mlp_same", "train_donate", "scan_loop", "mlp_change_after"]
)
@pytest.mark.parametrize("mode", ["ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED"])
def test_where_xla_does_well_the_guard_changes_nothing(name, mode):
    assert run(name, mode, Guarded()).to_json() == run(name, mode).to_json()


def test_a_recording_of_another_program_is_refused():
    with pytest.raises(InputError, match="the recording is of jit_other, the executable is jit_mlp_same"):
        run("mlp_same", change=lambda scenario: dataclasses.replace(scenario, module="jit_other"))


def with_dropped_argument(scenario, shape):
    def extended(inputs: ExecutionInputs) -> ExecutionInputs:
        return dataclasses.replace(inputs, parameters=(0x7000_0000, *inputs.parameters))

    return dataclasses.replace(
        scenario,
        argument_shapes=(shape, *scenario.argument_shapes),
        executions=tuple(extended(each) for each in scenario.executions),
    )


def test_an_argument_that_the_program_does_not_use_is_left_out():
    with_unused = run("two_gemm_drop", change=lambda scenario: with_dropped_argument(scenario, "s32[7]"))
    assert with_unused.to_json() == run("two_gemm_drop").to_json()


def test_arguments_that_do_not_fit_are_refused():
    def without_shapes(scenario):
        return dataclasses.replace(with_dropped_argument(scenario, "s32[7]"), argument_shapes=())

    with pytest.raises(InputError, match="has 4 arguments, jit_two_gemm_drop takes 3"):
        run("two_gemm_drop", change=without_shapes)


def test_an_argument_kept_by_the_caller_is_copied():
    def kept(scenario):
        return dataclasses.replace(scenario, has_donation=False)

    replayed = run("feedback_donate", "ALWAYS_UPDATE", change=kept)
    allocated = [event for event in replayed.executions[1].events if event.kind == "allocate"]
    assert [event.size for event in allocated] == [524288, 65536]
    assert replayed.executions[1].owning is not None


def test_every_execution_has_its_table_and_snapshot():
    replayed = run("two_gemm_drop")
    assert all(execution.owning is not None for execution in replayed.executions)
    assert [execution.snapshot.phase for execution in replayed.executions] == ["profiling"] * 3 + [
        "active"
    ] * 5
    refused = run("donate_external_hold").executions
    assert all(execution.owning is None and kinds(execution) == ["error"] for execution in refused)
