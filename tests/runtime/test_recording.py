"""Recording into a device's command buffer: order of events, addresses, nested buffers, failures."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.events import EventLog, RecordCreate, UpdateDone
from jax_cmdbuf.executable.thunks import ConditionalInfo, DynamicSliceFusionInfo, Thunk, ThunkKind
from jax_cmdbuf.runtime.buffer_allocations import BufferAllocations
from jax_cmdbuf.runtime.commands import command_list
from jax_cmdbuf.runtime.recording import Recording


@pytest.fixture
def log():
    return EventLog()


@pytest.fixture
def tables(world):
    return [BufferAllocations([world.allocate() for _ in range(4)]) for _ in range(2)]


def arguments(recording):
    return [address.opaque for address in recording.buffer._addresses()]


def conditional(make, *branches):
    return Thunk(
        ThunkKind("kConditional"), 9, "cond", make.kernel(0, [3], []).own_uses, branches, ConditionalInfo()
    )


def test_create_then_update_only_what_changed(world, make, log, tables):
    commands = command_list((make.kernel(1, [0], [1]), make.kernel(2, [2], [3])))
    recording = Recording(commands, world.executor)
    assert not recording.is_created
    recording.create(tables[0], log)
    assert recording.is_created
    mixed = tables[0].with_addresses({2: tables[1][2]})
    recording.update(mixed, frozenset({2}), log)
    assert arguments(recording) == [address.opaque for address in mixed.addresses]
    assert log.drain() == (RecordCreate(2), UpdateDone(2, 1))
    recording.close()


def test_nested_lists_are_created_after_and_updated_before_their_parent(world, make, log, tables):
    branches = (make.kernel(1, [0], [1]),), (make.kernel(2, [2], [1]), make.kernel(3, [2], [2]))
    recording = Recording(command_list((conditional(make, *branches),)), world.executor)
    recording.create(tables[0], log)
    recording.update(tables[0].with_addresses({0: tables[1][0]}), frozenset({0}), log)
    assert log.drain() == (
        RecordCreate(1),
        RecordCreate(1),
        RecordCreate(2),
        UpdateDone(1, 0),
        UpdateDone(2, 2),
        UpdateDone(1, 0),
    )
    assert tables[1][0].opaque in arguments(recording)
    recording.close()


def test_an_empty_list_is_created_but_never_updated(world, make, log, tables):
    recording = Recording(command_list((conditional(make, (), (make.kernel(1, [3], [0]),)),)), world.executor)
    recording.create(tables[0], log)
    recording.update(tables[0], frozenset({3}), log)
    assert log.drain() == (
        RecordCreate(1),
        RecordCreate(0),
        RecordCreate(1),
        UpdateDone(1, 0),
        UpdateDone(1, 0),
    )
    recording.close()


def test_below_a_dynamic_slice_fusion_everything_is_recorded_again_at_the_fusions_addresses(
    world, make, log, tables
):
    inner = (make.kernel(1, [0], [1]), make.kernel(2, [1], [0]))
    fusion = Thunk(
        ThunkKind("kDynamicSliceFusion"),
        3,
        "fusion",
        make.kernel(0, [2], [3]).own_uses,
        (inner,),
        DynamicSliceFusionInfo(loop_dependent=True),
    )
    recording = Recording(command_list((fusion,)), world.executor)
    recording.create(tables[0], log)
    recording.update(tables[0], frozenset(), log)
    assert log.drain() == (RecordCreate(1), RecordCreate(2), UpdateDone(2, 0), UpdateDone(1, 0))
    assert set(arguments(recording)) == {tables[0][2].opaque, tables[0][3].opaque}
    recording.close()


def test_copies_are_copies_and_a_refused_update_is_passed_on(world, make, log, tables):
    recording = Recording(command_list((make.kernel(1, [0], [1], kind="kCopy"),)), world.executor)
    recording.create(tables[0], log)
    assert [command.kind for command in recording.buffer.commands] == ["memcpy"]
    world.executor.driver.fail("cuGraphExecMemcpyNodeSetParams")
    world.executor.driver.fail("cuGraphExecNodeSetParams")
    with pytest.raises(StatusError, match="cuGraphExec"):
        recording.update(tables[1], frozenset({0}), log)
    recording.close()
    recording.close()


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        ("cuGraphAddNode", "kCustomKernel", "while recording kernel thunk.1 of HLO instruction thunk.1"),
        ("cuGraphAddNode", "kCopy", "while recording a copy of HLO instruction thunk.1"),
        ("cuGraphExecNodeSetParams", "kCustomKernel", "while updating kernel thunk.1 of HLO instruction"),
        ("cuGraphInstantiate", "kCustomKernel", "while instantiating a graph of 1 commands"),
    ],
)
def test_an_error_names_call_kernel_and_instruction(world, make, log, tables, call, kind, text):
    recording = Recording(command_list((make.kernel(1, [0], [1], kind=kind),)), world.executor)
    world.executor.driver.fail(call, error="CUDA_ERROR_INVALID_VALUE")

    def create_and_update():
        recording.create(tables[0], log)
        recording.update(tables[1], frozenset({0, 1}), log)

    with pytest.raises(StatusError, match=f"INTERNAL: {call}: CUDA_ERROR_INVALID_VALUE: .*, {text}"):
        create_and_update()
    recording.close()
