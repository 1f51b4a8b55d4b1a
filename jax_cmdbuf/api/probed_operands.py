"""Where XLA really had the operands of probes, over all recorded executions.

An observed profile says what XLA should do; a probe inside the program sees what it does: under
SKIP_PROFILED the caller's addresses in the three executions that are profiled, then, for what XLA remaps, one
address in its reservation that no caller ever sees. Invariant: made from records only; no call does anything
for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from jax_cmdbuf.api.probe import ProbeRecord

__all__ = ["ProbedOperand", "probed_operands"]


@dataclass(frozen=True, slots=True)
class ProbedOperand:
    """One operand of one probe on one device.

    Attributes:
      label, name: which probe, and which of its operands.
      device: the device's local ordinal.
      addresses: where it was, one per record, oldest first.
    """

    label: str
    name: str
    device: int
    addresses: tuple[int, ...]

    @property
    def moves(self) -> int:
        """In how many records it was elsewhere than in the one before."""
        return sum(a != b for a, b in pairwise(self.addresses))

    @property
    def settled_after(self) -> int:
        """How many records came before it moved for the last time."""
        last = self.addresses[-1]
        steady = next((n for n, each in enumerate(reversed(self.addresses)) if each != last), None)
        return 0 if steady is None else len(self.addresses) - steady


def probed_operands(records: Iterable[ProbeRecord]) -> tuple[ProbedOperand, ...]:
    """All operands of the given records, in order of first appearance."""
    found: dict[tuple[str, str, int], list[int]] = {}
    for record in records:
        for name, buffer in zip(record.names, record.buffers, strict=True):
            key = (record.label, name, record.device_ordinal)
            found.setdefault(key, []).append(buffer.address)
    return tuple(ProbedOperand(*key, tuple(addresses)) for key, addresses in found.items())
