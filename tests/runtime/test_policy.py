"""The classes of every update mode."""

from __future__ import annotations

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.runtime.policy import (
    POLICIES,
    PROFILE_STEPS,
    AllocationRole,
    RoleReason,
    classify,
    policy_for,
)
from xla_flags.options import CommandBufferUpdateMode as Mode

ALLOCATIONS = (
    BufferAllocation(0, 64, parameter_number=0),
    BufferAllocation(1, 64, maybe_live_out=True),
    BufferAllocation(2, 64),
    BufferAllocation(3, 64, is_constant=True),
    BufferAllocation(4, 4, is_thread_local=True),
    BufferAllocation(5, 16, is_tuple=True, maybe_live_out=True),
    BufferAllocation(6, 0, parameter_number=1),
    BufferAllocation(7, 64, parameter_number=2, maybe_live_out=True, is_parameter_aliased_with_output=True),
    BufferAllocation(8, 64, is_tuple=True),
    BufferAllocation(9, 0, is_constant=True),
    BufferAllocation(10, 64, parameter_number=3),
)
USED = (0, 1, 2, 3, 4, 6, 7, 8, 9, 99)


@pytest.mark.parametrize(
    ("mode", "va_remapped", "candidates"),
    [
        (Mode.ALWAYS_UPDATE, (), ()),
        (Mode.SKIP_TEMP, (2, 8), ()),
        (Mode.SKIP_PROFILED, (2, 8), (0, 1, 7)),
    ],
)
def test_constructor_policy(mode, va_remapped, candidates):
    found = classify(ALLOCATIONS, USED, mode)
    assert found.mode is mode
    assert found.constants == (3,)
    assert found.va_remapped == va_remapped
    assert found.candidates == candidates
    assert found.persistent == tuple(sorted((3, *va_remapped)))


def test_every_allocation_has_one_verdict_with_its_reason():
    verdicts = classify(ALLOCATIONS, USED, Mode.SKIP_PROFILED).verdicts
    assert [verdict.allocation for verdict in verdicts] == list(range(len(ALLOCATIONS)))
    assert {verdict.allocation: verdict.reason for verdict in verdicts} == {
        0: RoleReason.INPUT_OR_OUTPUT,
        1: RoleReason.INPUT_OR_OUTPUT,
        2: RoleReason.TEMP,
        3: RoleReason.CONSTANT,
        4: RoleReason.THREAD_LOCAL,
        5: RoleReason.TUPLE_TABLE,
        6: RoleReason.ZERO_SIZE,
        7: RoleReason.INPUT_OR_OUTPUT,
        8: RoleReason.TEMP,
        9: RoleReason.ZERO_SIZE,
        10: RoleReason.NOT_IN_COMMAND_BUFFER,
    }


@pytest.mark.parametrize("mode", POLICIES)
def test_thread_local_and_unused_allocations_are_always_dynamic(mode):
    for verdict in classify(ALLOCATIONS, USED, mode).verdicts:
        if verdict.allocation in (4, 5, 6, 9, 10):
            assert verdict.role is AllocationRole.DYNAMIC


def test_only_skip_profiled_profiles_and_for_three_executions():
    assert {mode: policy.profile_steps for mode, policy in POLICIES.items()} == {
        Mode.ALWAYS_UPDATE: 0,
        Mode.SKIP_TEMP: 0,
        Mode.SKIP_PROFILED: 3,
    }
    assert PROFILE_STEPS == 3


@pytest.mark.parametrize("mode", [Mode.NEVER_UPDATE, Mode.CAPTURE_CMD_NEVER_UPDATE])
def test_modes_of_older_releases_are_refused_by_name(mode):
    with pytest.raises(InputError, match=f"{mode.name}.*SKIP_PROFILED"):
        policy_for(mode)
