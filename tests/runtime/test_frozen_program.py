"""Programs on fixed addresses: who reads what the run before wrote, and that nothing stays behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.executable.executable import Executable, Output
from jax_cmdbuf.executable.thunks import CopyDirection, CopyInfo, Thunk, ThunkKind
from jax_cmdbuf.runtime.frozen_program import FrozenProgram
from jax_cmdbuf.stream_executor.memory import DriverError

RECORDED = Path(__file__).parents[1] / "data" / "va_remap"


def copy(make, identifier, source, destination, size=1000):
    uses = make.kernel(identifier, [source], [destination], size).own_uses
    return Thunk(
        ThunkKind("kCopy"),
        identifier,
        f"copy.{identifier}",
        uses,
        (),
        CopyInfo(CopyDirection.DEVICE_TO_DEVICE),
    )


@pytest.fixture
def step(make):
    """(state 0, batch 1) -> (state 2, out 3), through temporary 4."""
    allocations = [make.parameter(0), make.parameter(1), make.output(2), make.output(3), make.temp(4)]
    thunks = copy(make, 1, 0, 4), copy(make, 2, 4, 2), copy(make, 3, 1, 3)
    return make.executable(allocations, thunks)


def touched(recording):
    """Per command, the addresses it was recorded with."""
    return [{each.opaque for each in command.addresses} for command in recording.buffer.commands]


def test_a_carried_result_and_its_parameter_change_places(world, step):
    frozen = FrozenProgram(step, world.stream, {0: 0})
    first, batch = frozen.parameters
    frozen.launch()
    written, out = frozen.results
    assert frozen.parameters == (written, batch)
    assert written != first
    frozen.launch()
    assert frozen.results == (first, out)
    assert frozen.parameters == (first, batch)
    forth, back = map(touched, frozen._recordings)
    assert first.opaque in forth[0] & back[1]
    assert written.opaque in forth[1] & back[0]
    assert forth[2] == back[2] == {batch.opaque, out.opaque}
    frozen.close()
    frozen.close()
    assert world.executor.memory.is_empty


@pytest.mark.parametrize("carried", [{}, {0: 0}])
@pytest.mark.parametrize("count", [0, 1, 2, 33, 100])
def test_many_runs_end_where_single_runs_do(world, step, carried, count):
    single, many = (FrozenProgram(step, world.stream, carried) for _ in range(2))
    launches = world.executor.driver.calls["cuGraphLaunch"]
    many.launch()
    many.launch_many(count)
    launches = world.executor.driver.calls["cuGraphLaunch"] - launches
    assert launches <= count // 32 + 33
    for _ in range(count + 1):
        single.launch()

    def turns(frozen):
        return [
            address.opaque - frozen.parameters[1].opaque for address in frozen.parameters + frozen.results
        ]

    assert turns(single) == turns(many)
    single.close()
    many.close()
    assert world.executor.memory.is_empty


def test_without_carrying_there_is_one_recording(world, step):
    frozen = FrozenProgram(step, world.stream, {})
    before = frozen.parameters
    frozen.launch()
    assert frozen.parameters == before
    assert len(frozen._recordings) == 1
    assert len({address.opaque for address in (*frozen.parameters, *frozen.results)}) == 4
    frozen.close()


def test_a_donated_parameter_needs_no_second_recording(world, make):
    flags = {"maybe_live_out": True, "is_parameter_aliased_with_output": True}
    allocations = [make.parameter(0, **flags), make.parameter(1)]
    frozen = FrozenProgram(make.executable(allocations, (copy(make, 1, 1, 0),)), world.stream, {0: 0})
    frozen.launch()
    assert len(frozen._recordings) == 1
    assert frozen.results == frozen.parameters[:1]
    frozen.close()


def test_one_result_cannot_become_two_parameters(world, make):
    allocations = [make.parameter(0), make.parameter(1), make.output(2)]
    step = replace(
        make.executable(allocations, (copy(make, 1, 0, 2),)), outputs=(Output((0,), 2), Output((1,), 2))
    )
    with pytest.raises(StatusError, match=r"result 1 of jit_test shares allocation 2 with another"):
        FrozenProgram(step, world.stream, {0: 0, 1: 1})
    assert world.executor.memory.is_empty


def test_what_cannot_be_recorded_is_named(world, make):
    step = make.executable([make.parameter(0), make.output(1)], (make.kernel(1, [0], [1], kind="kFft"),))
    with pytest.raises(StatusError, match=r"kFft 'thunk.1' \(thunk 1\): only kernels and copies"):
        FrozenProgram(step, world.stream, {})


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuGraphInstantiate"])
def test_a_refused_call_leaves_nothing_behind(world, step, call):
    world.executor.driver.fail(call)
    with pytest.raises(DriverError, match=call):
        FrozenProgram(step, world.stream, {0: 0})
    assert world.executor.memory.is_empty


@pytest.mark.parametrize(
    "name", ["feedback", "feedback_donate", "zero_size", "real_transformer_adamw_donate"]
)
def test_recorded_programs_run_on_legal_addresses(world, name):
    executable = Executable.from_file(RECORDED / name / "executable.bin.gz")
    frozen = FrozenProgram(executable, world.stream, {})
    for _ in range(3):
        frozen.launch()
    for address, index in zip(frozen.parameters, executable.parameter_allocations, strict=True):
        assert address.size == executable.allocations[index].size
    frozen.close()
    assert world.executor.memory.is_empty
