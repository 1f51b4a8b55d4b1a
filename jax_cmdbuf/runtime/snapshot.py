"""A remapping as data: what is known of each allocation, and why.

Invariant: taking a snapshot reads immutable values only, so it needs no lock and never waits for an
  execution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax_cmdbuf.runtime.profiling import ProfilePhase
from jax_cmdbuf.runtime.remapping import Demotion, Remapping

__all__ = ["AllocationState", "RemappingSnapshot", "take_snapshot"]


@dataclass(frozen=True, slots=True)
class AllocationState:
    """One allocation in a snapshot: role, whether it is remapped, why, and its argument path."""

    allocation: int
    size: int
    role: str
    state: str
    reason: str
    path: str


@dataclass(frozen=True, slots=True)
class RemappingSnapshot:
    """A remapping as it stood at one moment.

    Attributes:
      module, device, mode: whose it is.
      phase: the profile's phase.
      steps, limit: successful executions observed, of how many.
      executions, failures: executions begun, and those that failed.
      selected: allocations that live in the reservation now.
      persistent: the persistent indices, or None while unknown.
      reserved_bytes: size of the reservation.
      allocations: every allocation with its verdict.
      demotions: what the guard took out.
    """

    module: str
    device: int
    mode: str
    phase: str
    steps: int
    limit: int
    executions: int
    failures: int
    selected: tuple[int, ...]
    persistent: tuple[int, ...] | None
    reserved_bytes: int
    allocations: tuple[AllocationState, ...]
    demotions: tuple[Demotion, ...]

    def to_json(self) -> dict[str, Any]:
        """The snapshot as a JSON object."""
        names = self.__dataclass_fields__
        value = {name: getattr(self, name) for name in names if name not in ("allocations", "demotions")}
        for name in ("allocations", "demotions"):
            rows = getattr(self, name)
            value[name] = [{key: getattr(row, key) for key in row.__dataclass_fields__} for row in rows]
        return value


_CANDIDATE_STATES = {None: "profiling", True: "remapped", False: "rejected"}


def _phase(remapping: Remapping) -> ProfilePhase:
    if remapping.program.classification.policy.profile_steps:
        return remapping.profile.phase
    return ProfilePhase.ACTIVE if remapping.selected else ProfilePhase.DISABLED


def take_snapshot(remapping: Remapping) -> RemappingSnapshot:
    """The state now; never waits for an execution."""
    classification, profile, persistent = (
        remapping.program.classification,
        remapping.profile,
        remapping.persistent,
    )
    reservation = remapping.reservation
    return RemappingSnapshot(
        module=remapping.program.module,
        device=remapping.executor.device_ordinal,
        mode=classification.mode.name,
        phase=_phase(remapping).value,
        steps=profile.steps,
        limit=classification.policy.profile_steps,
        executions=remapping.executions,
        failures=remapping.failures,
        selected=remapping.selected,
        persistent=persistent.indices,
        reserved_bytes=reservation.address.size if reservation is not None else 0,
        allocations=tuple(_allocation_states(remapping)),
        demotions=remapping.demotions,
    )


def _allocation_states(remapping: Remapping) -> Iterator[AllocationState]:
    program, profile, verdicts = remapping.program, remapping.profile, remapping.verdicts
    selected, demoted = remapping.selected, {each.allocation: each.reason for each in remapping.demotions}
    for verdict in program.classification.verdicts:
        index = verdict.allocation
        state, reason = verdict.role.value, verdict.reason.value
        if index in program.classification.candidates:
            candidate = verdicts.get(index) or profile.verdict(index)
            state, reason = _CANDIDATE_STATES[candidate.remapped], candidate.reason.value
        elif index in selected:
            state = "remapped"
        if index in demoted:
            state, reason = "demoted", demoted[index]
        yield AllocationState(
            index,
            program.allocations[index].size,
            verdict.role.value,
            state,
            reason,
            program.paths.get(index, ""),
        )
