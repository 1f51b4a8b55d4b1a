"""Which commands a command buffer holds, and which of them an update touches."""

from __future__ import annotations

import pytest

from jax_cmdbuf.executable.thunks import (
    AsyncInfo,
    ConditionalInfo,
    DynamicSliceFusionInfo,
    Thunk,
    ThunkKind,
    WhileInfo,
)
from jax_cmdbuf.runtime.commands import COMMAND_RULES, CommandShape, command_list


@pytest.fixture
def leaf(make):
    return lambda identifier, *used, kind="kCustomKernel", size=64: make.kernel(
        identifier, used, (), size, kind
    )


def nest(kind, identifier, own, *lists, info=None):
    return Thunk(ThunkKind(kind), identifier, kind, tuple(u for t in own for u in t.own_uses), lists, info)


def kinds(commands):
    return [command.thunk.id for command in commands.commands]


def test_async_and_sequential_thunks_stand_for_what_is_in_them(leaf):
    thunks = (
        leaf(1, 0),
        nest("kAsyncStart", 2, (), (leaf(3, 1), leaf(4, 2)), info=AsyncInfo(2)),
        Thunk(ThunkKind("kAsyncDone"), 5, "done"),
        nest("kSequential", 6, (), (leaf(7, 3),)),
    )
    assert kinds(command_list(thunks)) == [1, 3, 4, 7]


def test_an_update_touches_the_commands_that_use_a_changed_allocation(leaf):
    commands = command_list((leaf(1, 0, 1), leaf(2, 1, 2), leaf(3, 3)))
    assert commands.allocations == {0, 1, 2, 3}
    assert list(commands.updated(frozenset({1}))) == [0, 1]
    assert list(commands.updated(frozenset({9}))) == []
    assert list(commands.updated(frozenset())) == []
    assert list(commands.updated(None)) == [0, 1, 2]


def test_a_dynamic_slice_fusion_with_moving_offsets_is_always_updated_with_all_it_holds(leaf):
    moving = nest(
        "kDynamicSliceFusion",
        2,
        (leaf(0, 5),),
        (leaf(3, 0),),
        info=DynamicSliceFusionInfo(loop_dependent=True),
    )
    still = nest("kDynamicSliceFusion", 4, (leaf(0, 6),), (leaf(5, 0),), info=DynamicSliceFusionInfo())
    commands = command_list((leaf(1, 0), moving, still))
    assert commands.requires_update_on_execute
    assert list(commands.updated(frozenset())) == [1]
    assert list(commands.updated(frozenset({6}))) == [1, 2]
    # The embedded thunk's allocation 0 is a private one.
    assert commands.commands[2].allocations == {6}
    assert not commands.commands[1].children_inherit


def test_a_loop_records_its_condition_before_it_and_at_the_end_of_its_body(leaf):
    loop = nest("kWhile", 1, (), (leaf(2, 0),), (leaf(3, 1), leaf(4, 2)), info=WhileInfo(trip_count=3))
    (command,) = command_list((loop,)).commands
    assert [len(child) for child in command.children] == [1, 2, 1]
    (unrolled,) = command_list((loop,), unroll_loops=True).commands
    assert [len(child) for child in unrolled.children] == [1, 2] * 3
    unknown = nest("kWhile", 1, (), (leaf(2, 0),), (leaf(3, 1),), info=WhileInfo())
    (command,) = command_list((unknown,), unroll_loops=True).commands
    assert len(command.children) == 3


def test_branches_of_a_predicate_are_recorded_true_first(leaf):
    branches = (leaf(2, 0),), (leaf(3, 1), leaf(4, 1))
    by_number = nest("kConditional", 1, (leaf(0, 9, size=4),), *branches, info=ConditionalInfo())
    by_predicate = nest("kConditional", 1, (leaf(0, 9, size=1),), *branches, info=ConditionalInfo())
    sizes = [[len(c) for c in command_list((t,)).commands[0].children] for t in (by_number, by_predicate)]
    assert sizes == [[1, 2], [2, 1]]


def test_collectives_want_a_warm_up_and_recording_on_every_rank(leaf):
    commands = command_list((leaf(1, 0), leaf(2, 1, kind="kAllReduce")))
    assert commands.requires_warmup
    assert commands.requires_update_on_initialize
    assert not commands.requires_update_on_execute
    assert list(commands.updated(frozenset(), is_initialization=True)) == [1]
    assert list(commands.updated(frozenset())) == []


def test_needs_of_nested_commands_are_needs_of_their_command(leaf):
    inner = (leaf(2, 0, kind="kAllGather"),)
    conditional = nest("kConditional", 1, (leaf(0, 9),), inner, (), info=ConditionalInfo())
    commands = command_list((conditional,))
    assert commands.requires_warmup
    assert commands.requires_update_on_initialize


def test_an_unknown_kind_is_one_command(leaf):
    assert kinds(command_list((leaf(1, 0, kind="kNewInSomeRelease"),))) == [1]
    assert all(isinstance(rule.shape, CommandShape) for rule in COMMAND_RULES.values())
