"""Which allocations each update mode treats how: one row per mode, pure data in and out.

Mirrors the constructor policy of ``xla/service/gpu/gpu_executable_va_remap_allocator.cc``. Invariant: every
allocation of the table gets exactly one role and one reason, and a thread-local allocation or one that no
command buffer uses is never anything but DYNAMIC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.buffers import BufferAllocation
from xla_flags.options import CommandBufferUpdateMode

__all__ = [
    "POLICIES",
    "PROFILE_STEPS",
    "AllocationRole",
    "AllocationVerdict",
    "Classification",
    "RoleReason",
    "UpdatePolicy",
    "classify",
    "policy_for",
]

# Successful executions observed before SKIP_PROFILED decides (XLA's window of three).
PROFILE_STEPS = 3


class AllocationRole(Enum):
    """What an update mode does with an allocation.

    CONSTANT: its address never changes by itself; persistent. REMAPPED: lives at a fixed reservation address
    from its first remapped run ("automatic"). CANDIDATE: profiled, and remapped if its address proved stable.
    DYNAMIC: compared, and its commands updated, on every execution.
    """

    CONSTANT = "constant"
    REMAPPED = "remapped"
    CANDIDATE = "candidate"
    DYNAMIC = "dynamic"


class RoleReason(Enum):
    """Why an allocation has its role; the value is a sentence part for people."""

    CONSTANT = "a constant: written once when the program is loaded"
    THREAD_LOCAL = "thread-local: nothing is allocated for it at run time"
    ZERO_SIZE = "no bytes: nothing is allocated for it"
    TUPLE_TABLE = "a tuple table: no thunk reads or writes it"
    NOT_IN_COMMAND_BUFFER = "no command buffer uses it"
    TEMP = "a temporary that command buffers use"
    INPUT_OR_OUTPUT = "an input or output that command buffers use"


@dataclass(frozen=True, slots=True)
class AllocationVerdict:
    """The role of one allocation, and why."""

    allocation: int
    role: AllocationRole
    reason: RoleReason


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """One update mode's row.

    Attributes:
      mode: the mode.
      temps: role of temporaries that command buffers use.
      inputs_and_outputs: role of parameters and live-outs that command buffers use.
      profile_steps: successful executions to observe before candidates are chosen; 0: nothing is profiled.
    """

    mode: CommandBufferUpdateMode
    temps: AllocationRole
    inputs_and_outputs: AllocationRole
    profile_steps: int = 0

    def role_of(self, allocation: BufferAllocation, used_by_command_buffer: bool) -> AllocationVerdict:
        """The role of one allocation and the reason for it."""
        verdict = AllocationVerdict
        index = allocation.index
        if allocation.is_thread_local:
            return verdict(index, AllocationRole.DYNAMIC, RoleReason.THREAD_LOCAL)
        # A command over no bytes names its allocations, but XLA does not count that as a use (recorded:
        # `zero_size`, whose constant and output of no bytes are neither persistent nor candidates).
        if allocation.size == 0:
            return verdict(index, AllocationRole.DYNAMIC, RoleReason.ZERO_SIZE)
        if not used_by_command_buffer:
            return verdict(index, AllocationRole.DYNAMIC, _why_unused(allocation))
        if allocation.is_constant:
            return verdict(index, AllocationRole.CONSTANT, RoleReason.CONSTANT)
        if allocation.is_preallocated_temp_buffer:
            return verdict(index, self.temps, RoleReason.TEMP)
        return verdict(index, self.inputs_and_outputs, RoleReason.INPUT_OR_OUTPUT)


def _why_unused(allocation: BufferAllocation) -> RoleReason:
    # Only a live-out tuple is a table; a temp may carry the mark for one value among many.
    if allocation.is_tuple and allocation.maybe_live_out:
        return RoleReason.TUPLE_TABLE
    return RoleReason.NOT_IN_COMMAND_BUFFER


_Mode = CommandBufferUpdateMode
_Role = AllocationRole

POLICIES: dict[CommandBufferUpdateMode, UpdatePolicy] = {
    row.mode: row
    for row in (
        UpdatePolicy(_Mode.ALWAYS_UPDATE, _Role.DYNAMIC, _Role.DYNAMIC),
        UpdatePolicy(_Mode.SKIP_TEMP, _Role.REMAPPED, _Role.DYNAMIC),
        UpdatePolicy(_Mode.SKIP_PROFILED, _Role.REMAPPED, _Role.CANDIDATE, PROFILE_STEPS),
    )
}


@dataclass(frozen=True, slots=True)
class Classification:
    """All verdicts of one executable under one mode, and the classes they form.

    Attributes:
      policy: the mode's row.
      verdicts: one per allocation, in index order.
      constants: indices with role CONSTANT, ascending.
      va_remapped: indices with role REMAPPED (XLA's "automatic"), ascending.
      candidates: indices with role CANDIDATE, ascending.
    """

    policy: UpdatePolicy
    verdicts: tuple[AllocationVerdict, ...]
    constants: tuple[int, ...]
    va_remapped: tuple[int, ...]
    candidates: tuple[int, ...]

    @property
    def mode(self) -> CommandBufferUpdateMode:
        """The update mode."""
        return self.policy.mode

    @property
    def persistent(self) -> tuple[int, ...]:
        """Constants and automatic temps, ascending: what is persistent before any profile has decided."""
        return tuple(sorted((*self.constants, *self.va_remapped)))


def policy_for(mode: CommandBufferUpdateMode) -> UpdatePolicy:
    """The row of ``mode``.

    Raises:
      InputError: the mode exists in some jaxlib, but is not one that this package models.
    """
    try:
        return POLICIES[mode]
    except KeyError:
        known = ", ".join(known.name for known in POLICIES)
        raise InputError(f"update mode {mode.name} is not modelled; use one of {known}") from None


def classify(
    allocations: Sequence[BufferAllocation],
    command_buffer_allocations: Iterable[int],
    mode: CommandBufferUpdateMode,
) -> Classification:
    """Sorts an executable's allocations into the classes of ``mode``.

    Args:
      allocations: the allocation table; index = position.
      command_buffer_allocations: indices that some command-buffer thunk uses, nested ones included; indices
        outside the table are skipped, as XLA does.
      mode: the update mode.

    Raises:
      InputError: ``mode`` has no row.
    """
    policy = policy_for(mode)
    used = frozenset(command_buffer_allocations)
    verdicts = tuple(policy.role_of(allocation, allocation.index in used) for allocation in allocations)

    def having(role: AllocationRole) -> tuple[int, ...]:
        return tuple(verdict.allocation for verdict in verdicts if verdict.role is role)

    return Classification(
        policy,
        verdicts,
        constants=having(AllocationRole.CONSTANT),
        va_remapped=having(AllocationRole.REMAPPED),
        candidates=having(AllocationRole.CANDIDATE),
    )
