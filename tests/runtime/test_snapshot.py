"""Snapshots: every allocation with its verdict and reason, as plain data."""

from __future__ import annotations

import dataclasses
import json

import pytest

from jax_cmdbuf.runtime.guard import Guarded
from jax_cmdbuf.runtime.remapping import Remapping
from jax_cmdbuf.runtime.snapshot import take_snapshot
from xla_flags.options import CommandBufferUpdateMode as Mode


class Owner:
    """Stands for a loaded executable."""


def states(snapshot):
    return [each.state for each in snapshot.allocations]


def test_the_verdict_on_every_allocation_and_its_path(world, make):
    owner = Owner()
    program = dataclasses.replace(
        make.program(
            [make.parameter(0), make.parameter(1), make.temp(2), make.constant(3), make.output(4)],
            Mode.SKIP_PROFILED,
            used=[0, 1, 2, 3],
        ),
        paths={0: "params['w']"},
    )
    buffers = [world.allocate(), world.allocate(), world.allocate()]
    for run in range(4):
        given = {0: buffers[0], 1: buffers[1 + run % 2]}
        world.scope(owner, program, given)
    (snapshot,) = world.registry.snapshots()
    assert states(snapshot) == ["remapped", "rejected", "remapped", "constant", "dynamic"]
    assert snapshot.allocations[0].path == "params['w']"
    assert snapshot.allocations[1].reason == "its address changed while it was observed"
    assert snapshot.allocations[4].reason == "no command buffer uses it"
    assert snapshot.persistent == (0, 2, 3)


@pytest.mark.parametrize(
    ("mode", "phase", "temp"),
    [
        (Mode.SKIP_TEMP, "active", "remapped"),
        (Mode.SKIP_PROFILED, "inactive", "remapped"),
        (Mode.ALWAYS_UPDATE, "disabled", "dynamic"),
    ],
)
def test_the_phase_before_any_execution(world, make, mode, phase, temp):
    program = make.program([make.temp(0)], mode)
    snapshot = take_snapshot(Remapping(program, world.allocator, world.executor))
    assert (snapshot.phase, snapshot.mode, snapshot.executions) == (phase, mode.name, 0)
    assert states(snapshot) == [temp]
    assert snapshot.reserved_bytes == 0


def test_demotions_are_told_and_counted(world, make):
    owner, program = Owner(), make.program([make.parameter(0), make.parameter(1)], Mode.SKIP_PROFILED)
    buffers = [world.allocate(), world.allocate()]
    for run in range(5):
        world.scope(owner, program, {0: buffers[0], 1: buffers[run < 4]}, guard=Guarded())
    (snapshot,) = world.registry.snapshots()
    assert len(snapshot.demotions) == 1
    assert states(snapshot) == ["remapped", "demoted"]
    value = json.loads(json.dumps(snapshot.to_json()))
    assert value["demotions"][0]["allocation"] == 1
    assert "ALREADY_EXISTS" in value["allocations"][1]["reason"]
    assert list(value)[:3] == ["module", "device", "mode"]
