"""Beyond XLA: what to do where its remapping would fail an execution or thrash.

XLA fails every execution in which a remapped buffer cannot be mapped (one buffer passed for two selected
parameters, a null or foreign buffer), although its plain mode would run; and it keeps remapping an address
that moves at every step, at the price of an unmap, a wait and a map each time. ``FIDELITY``, the default,
does the same; ``Guarded`` takes such allocations out of the remapped set instead, once each, with a reason.
Invariant: a guard only ever shrinks the remapped set.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from jax_cmdbuf.errors import StatusError

__all__ = ["FIDELITY", "Fidelity", "Guard", "Guarded", "Moves"]

# Remapped allocation -> numbers of the last executions in which its address had changed.
Moves = dict[int, deque[int]]


class Guard(Protocol):
    """Decides whether an allocation is taken out of the remapped set."""

    def failed(self, error: StatusError) -> str | None:
        """Reserving or mapping an allocation failed: the reason to give it up, or None to fail."""

    def moved(self, moves: Moves, allocation: int, execution: int) -> str | None:
        """The address of a remapped input or output changed: the reason to give it up, or None to go on.

        Args:
          moves: what this guard remembers of earlier moves; updated here.
          allocation: its index.
          execution: number of the execution, ascending.
        """


class Fidelity:
    """Does what XLA does: never gives up an allocation."""

    def failed(self, error: StatusError) -> str | None:
        """XLA returns the error."""
        return None

    def moved(self, moves: Moves, allocation: int, execution: int) -> str | None:
        """XLA maps the new address."""
        return None


@dataclass(frozen=True, slots=True)
class Guarded:
    """Gives up what cannot be mapped, and what moves often.

    Attributes:
      most_moves: moves within the window that are still worth remapping.
      window: executions over which moves are counted.
    """

    most_moves: int = 2
    window: int = 8

    def failed(self, error: StatusError) -> str | None:
        """Any refusal: plain execution needs no mapping."""
        return f"it could not be mapped: {error}"

    def moved(self, moves: Moves, allocation: int, execution: int) -> str | None:
        """More than ``most_moves`` moves in ``window`` executions."""
        recent = moves.setdefault(allocation, deque(maxlen=self.most_moves + 1))
        recent.append(execution)
        if len(recent) > self.most_moves and execution - recent[0] < self.window:
            return f"its address changed {len(recent)} times in {execution - recent[0] + 1} executions"
        return None


FIDELITY: Guard = Fidelity()
