"""The profile of SKIP_PROFILED: which allocations keep their address, and what follows from it.

Mirrors the profiling half of ``xla/service/gpu/gpu_executable_va_remap_allocator.cc``. Pure: every function
returns a new profile. Invariant: all phase moves happen in this file, by ``MOVES``; PROFILING is left at most
once, and what an illegal call was given is left as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.runtime.policy import Classification
from jax_cmdbuf.stream_executor.device_address import DeviceAddress

__all__ = [
    "MOVES",
    "CandidateReason",
    "CandidateVerdict",
    "Profile",
    "ProfilePhase",
    "Transition",
    "begin",
    "is_due",
    "observe",
    "transition",
]


class ProfilePhase(Enum):
    """Where a profile stands; ``MOVES`` has the legal moves."""

    INACTIVE = "inactive"
    PROFILING = "profiling"
    ACTIVE = "active"
    DISABLED = "disabled"


MOVES: Mapping[ProfilePhase, frozenset[ProfilePhase]] = MappingProxyType(
    {
        ProfilePhase.INACTIVE: frozenset({ProfilePhase.PROFILING}),
        ProfilePhase.PROFILING: frozenset({ProfilePhase.ACTIVE, ProfilePhase.DISABLED}),
        ProfilePhase.ACTIVE: frozenset(),
        ProfilePhase.DISABLED: frozenset(),
    }
)


class CandidateReason(Enum):
    """Why a candidate is, or is not, remapped; the value is a sentence part for people."""

    OBSERVING = "its address has not changed so far"
    STABLE = "its address did not change while it was observed"
    MOVED = "its address changed while it was observed"
    NULL = "its address was null"
    NEVER_OBSERVED = "it was never observed"
    NOT_VMM_BACKED = "its address is not one that the VMM allocator handed out"
    SHARED_BUFFER = "another parameter has the same buffer"


_UNDECIDED = (CandidateReason.OBSERVING, CandidateReason.NEVER_OBSERVED)


@dataclass(frozen=True, slots=True)
class CandidateVerdict:
    """What is known of one candidate: remapped or not (None: not decided yet), and why."""

    allocation: int
    remapped: bool | None
    reason: CandidateReason


@dataclass(frozen=True)
class Profile:
    """One executable's profile on one device.

    Attributes:
      phase: where it stands.
      steps: successful executions observed.
      last_observed: candidate -> its address in the last successful execution.
      unstable: candidate -> why it can no longer be selected.
    """

    phase: ProfilePhase = ProfilePhase.INACTIVE
    steps: int = 0
    last_observed: Mapping[int, DeviceAddress] = field(default_factory=dict)
    unstable: Mapping[int, CandidateReason] = field(default_factory=dict)

    def verdict(self, candidate: int) -> CandidateVerdict:
        """The verdict on ``candidate`` as observed so far."""
        if candidate in self.unstable:
            return CandidateVerdict(candidate, False, self.unstable[candidate])
        if candidate in self.last_observed:
            return CandidateVerdict(candidate, None, CandidateReason.OBSERVING)
        return CandidateVerdict(candidate, None, CandidateReason.NEVER_OBSERVED)


@dataclass(frozen=True)
class Transition:
    """The end of profiling.

    Attributes:
      profile: the profile in its last phase.
      selected: candidates that will be remapped, ascending.
      verdicts: one per candidate, ascending.
    """

    profile: Profile
    selected: tuple[int, ...]
    verdicts: tuple[CandidateVerdict, ...]


def _moved(profile: Profile, phase: ProfilePhase) -> Profile:
    if phase not in MOVES[profile.phase]:
        raise StatusError(
            StatusCode.INTERNAL, f"a profile cannot move from {profile.phase.value} to {phase.value}"
        )
    return replace(profile, phase=phase)


def begin(profile: Profile) -> Profile:
    """The first execution starts: INACTIVE becomes PROFILING; every other phase stays."""
    if profile.phase is ProfilePhase.INACTIVE:
        return _moved(profile, ProfilePhase.PROFILING)
    return profile


def observe(profile: Profile, addresses: Mapping[int, DeviceAddress]) -> Profile:
    """One execution succeeded with these candidate addresses.

    Args:
      profile: a profile in phase PROFILING.
      addresses: candidate -> the address its buffer had, donation and copy protection included.

    Raises:
      StatusError: INTERNAL, the profile is not in phase PROFILING.
    """
    if profile.phase is not ProfilePhase.PROFILING:
        raise StatusError(
            StatusCode.INTERNAL, f"a profile in phase {profile.phase.value} does not observe executions"
        )
    last_observed, unstable = dict(profile.last_observed), dict(profile.unstable)
    for candidate, address in addresses.items():
        if address.is_null:
            unstable.setdefault(candidate, CandidateReason.NULL)
        elif last_observed.setdefault(candidate, address) != address:
            unstable.setdefault(candidate, CandidateReason.MOVED)
        last_observed[candidate] = address
    return replace(profile, steps=profile.steps + 1, last_observed=last_observed, unstable=unstable)


def is_due(profile: Profile, classification: Classification) -> bool:
    """Whether enough executions were observed, so that the next one starts with ``transition``."""
    return profile.phase is ProfilePhase.PROFILING and profile.steps >= classification.policy.profile_steps


def transition(
    profile: Profile,
    classification: Classification,
    allocations: tuple[BufferAllocation, ...],
    is_allocator_address: Callable[[DeviceAddress], bool],
) -> Transition:
    """Decides which candidates are remapped and ends profiling.

    Args:
      profile: a profile in phase PROFILING.
      classification: the executable's classes under its update mode.
      allocations: the executable's allocation table.
      is_allocator_address: whether an address is an exact, live address of the VMM allocator.

    Raises:
      StatusError: INTERNAL, the profile is not in phase PROFILING.
    """
    reasons: dict[int, CandidateReason] = {}
    kept_parameters: list[int] = []
    for candidate in classification.candidates:
        address = profile.last_observed.get(candidate)
        if candidate in profile.unstable:
            reasons[candidate] = profile.unstable[candidate]
        elif address is None or address.is_null:
            reasons[candidate] = CandidateReason.NEVER_OBSERVED
        elif not allocations[candidate].is_entry_computation_parameter:
            reasons[candidate] = CandidateReason.STABLE
        elif not is_allocator_address(address):
            reasons[candidate] = CandidateReason.NOT_VMM_BACKED
        else:
            reasons[candidate] = CandidateReason.STABLE
            kept_parameters.append(candidate)
    # Every parameter of a shared buffer goes, the first one too: only one alias of a buffer can exist.
    count = Counter(profile.last_observed[parameter].opaque for parameter in kept_parameters)
    for parameter in kept_parameters:
        if count[profile.last_observed[parameter].opaque] > 1:
            reasons[parameter] = CandidateReason.SHARED_BUFFER
    selected = tuple(index for index, reason in reasons.items() if reason is CandidateReason.STABLE)
    active = bool(selected or classification.va_remapped)
    return Transition(
        _moved(profile, ProfilePhase.ACTIVE if active else ProfilePhase.DISABLED),
        selected,
        tuple(
            CandidateVerdict(index, reason is CandidateReason.STABLE, reason)
            for index, reason in reasons.items()
        ),
    )
