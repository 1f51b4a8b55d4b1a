"""The profile: every legal move, every illegal one, and the filters of the transition."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.runtime.policy import classify
from jax_cmdbuf.runtime.profiling import (
    MOVES,
    CandidateReason,
    Profile,
    ProfilePhase,
    begin,
    is_due,
    observe,
    transition,
)
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS, DeviceAddress
from xla_flags.options import CommandBufferUpdateMode as Mode

A, B = DeviceAddress(0x200000, 64), DeviceAddress(0x400000, 64)
ALLOCATIONS = (
    BufferAllocation(0, 64, parameter_number=0),
    BufferAllocation(1, 64, parameter_number=1),
    BufferAllocation(2, 64, maybe_live_out=True),
)
CLASSES = classify(ALLOCATIONS, range(3), Mode.SKIP_PROFILED)
WITH_TEMP = classify((*ALLOCATIONS, BufferAllocation(3, 64)), range(4), Mode.SKIP_PROFILED)


def profiled(*observations, classes=CLASSES):
    profile = begin(Profile())
    for observation in observations:
        profile = observe(profile, dict(enumerate(observation)))
    return profile


def decide(profile, classes=CLASSES, foreign=()):
    return transition(profile, classes, ALLOCATIONS, lambda address: address not in foreign)


def reasons(result):
    return [verdict.reason for verdict in result.verdicts]


def test_the_moves_are_inactive_profiling_then_active_or_disabled():
    assert {
        ProfilePhase.INACTIVE: {ProfilePhase.PROFILING},
        ProfilePhase.PROFILING: {ProfilePhase.ACTIVE, ProfilePhase.DISABLED},
        ProfilePhase.ACTIVE: set(),
        ProfilePhase.DISABLED: set(),
    } == MOVES


def test_only_the_first_execution_begins_profiling():
    for phase in ProfilePhase:
        expected = ProfilePhase.PROFILING if phase is ProfilePhase.INACTIVE else phase
        assert begin(Profile(phase)).phase is expected


@pytest.mark.parametrize("phase", [phase for phase in ProfilePhase if phase is not ProfilePhase.PROFILING])
def test_observing_and_deciding_outside_profiling_are_refused_and_change_nothing(phase):
    profile = Profile(phase)
    with pytest.raises(StatusError, match="INTERNAL"):
        observe(profile, {0: A})
    with pytest.raises(StatusError, match="INTERNAL"):
        decide(profile, WITH_TEMP)
    assert profile == Profile(phase)


def test_three_observations_make_the_transition_due():
    profile = begin(Profile())
    for steps in range(3):
        assert profile.steps == steps
        assert not is_due(profile, CLASSES)
        profile = observe(profile, {0: A, 1: B, 2: A})
    assert is_due(profile, CLASSES)
    assert not is_due(decide(profile).profile, CLASSES)


def test_stable_addresses_are_selected():
    result = decide(profiled(*[(A, B, A)] * 3))
    assert result.selected == (0, 1, 2)
    assert result.profile.phase is ProfilePhase.ACTIVE
    assert all(verdict.remapped for verdict in result.verdicts)


def test_an_address_is_pointer_and_size():
    larger = DeviceAddress(A.opaque, A.size + 1)
    assert reasons(decide(profiled((A, B, A), (larger, B, A))))[0] is CandidateReason.MOVED


def test_once_unstable_stays_unstable_and_remembers_the_last_address():
    profile = profiled((A, B, A), (B, B, A), (B, B, A), (B, B, A))
    assert profile.last_observed[0] == B
    assert reasons(decide(profile))[0] is CandidateReason.MOVED


def test_a_null_address_is_unstable():
    assert reasons(decide(profiled((A, B, A), (NULL_ADDRESS, B, A))))[0] is CandidateReason.NULL
    assert reasons(decide(profiled(*[(NULL_ADDRESS, B, A)] * 3)))[0] is CandidateReason.NULL


def test_a_candidate_never_observed_is_not_selected():
    profile = observe(begin(Profile()), {1: A})
    assert reasons(decide(profile))[0] is CandidateReason.NEVER_OBSERVED


def test_parameters_must_be_addresses_of_the_allocator_and_outputs_need_not():
    result = decide(profiled(*[(A, B, A)] * 3), foreign=(A,))
    assert result.selected == (1, 2)
    assert reasons(result)[0] is CandidateReason.NOT_VMM_BACKED


def test_all_parameters_of_a_shared_buffer_are_dropped():
    result = decide(profiled(*[(A, A, B)] * 3))
    assert result.selected == (2,)
    assert reasons(result)[:2] == [CandidateReason.SHARED_BUFFER] * 2


def test_outputs_and_dropped_parameters_do_not_count_as_sharing():
    # The output has the first parameter's address; the second parameter, dropped, as well.
    assert decide(profiled(*[(A, B, A)] * 3)).selected == (0, 1, 2)
    assert decide(profiled((A, B, B), (A, A, B), (A, A, B))).selected == (0, 2)


def test_nothing_selected_and_no_temps_disables_and_a_temp_keeps_it_active():
    moving = profiled((A, A, A), (B, B, B), (A, A, A))
    assert decide(moving).profile.phase is ProfilePhase.DISABLED
    assert decide(moving).selected == ()
    result = transition(moving, WITH_TEMP, (*ALLOCATIONS, BufferAllocation(3, 64)), lambda address: True)
    assert result.profile.phase is ProfilePhase.ACTIVE


def test_what_is_known_of_a_candidate_before_the_transition():
    profile = profiled((A, B, A), (B, B, A))
    assert profile.verdict(0).remapped is False
    assert profile.verdict(1).remapped is None
    assert Profile().verdict(0).reason is CandidateReason.NEVER_OBSERVED


ADDRESSES = st.sampled_from([NULL_ADDRESS, A, B])


@given(st.lists(st.tuples(ADDRESSES, ADDRESSES, ADDRESSES), min_size=1, max_size=6))
def test_selected_is_what_never_moved_and_was_never_null_and_shares_nothing(observations):
    result = decide(profiled(*observations))
    columns = list(zip(*observations, strict=True))
    steady = [len(set(column)) == 1 and NULL_ADDRESS not in column for column in columns]
    shared = steady[0] and steady[1] and columns[0][0] == columns[1][0]
    expected = [i for i in range(3) if steady[i] and not (shared and i < 2)]
    assert list(result.selected) == expected
    assert len(result.verdicts) == 3


@given(st.lists(st.sampled_from(["begin", "observe", "decide"]), max_size=8))
def test_profiling_is_left_at_most_once_whatever_is_called(calls):
    profile, phases = Profile(), [ProfilePhase.INACTIVE]
    for call in calls:
        try:
            match call:
                case "begin":
                    profile = begin(profile)
                case "observe":
                    profile = observe(profile, {0: A})
                case _:
                    profile = decide(profile).profile
        except StatusError:
            continue
        phases.append(profile.phase)
    changes = [(a, b) for a, b in itertools.pairwise(phases) if a is not b]
    assert all(after in MOVES[before] for before, after in changes)
    assert len(changes) <= 2
