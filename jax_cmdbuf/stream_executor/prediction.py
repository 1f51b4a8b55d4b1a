"""Predicts the addresses that the VMM allocator hands out, from the order of allocations and frees alone.

The rule is ``DeferredOperations.take_reusable``'s: the oldest pending free of the same rounded size, else an
address of the driver's choosing. What a recording cannot show is when pending frees were completed because
an executable with remapping was torn down; ``steps_of_recording`` says where it assumes that. Invariant:
after every allocation the predictor goes on from the recorded address, so that one miss does not bring the
next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.stream_executor.deferred_operations import XLA_BATCH, DeferredOperation, DeferredOperations
from jax_cmdbuf.stream_executor.device_address import round_up

__all__ = [
    "AllocationStep",
    "History",
    "PredictedAllocation",
    "Prediction",
    "ReusePredictor",
    "StepKind",
    "predict_addresses",
    "steps_of_recording",
    "steps_of_trace",
]

GRANULARITY = 2 << 20


class StepKind(Enum):
    """What can happen to the allocator, as far as addresses are concerned.

    ALLOCATE and DEALLOCATE: an address was handed out or taken back. RESERVE: a range for remapping was
    reserved. SYNCHRONIZE: every pending free was completed, so that none can be reused any more.
    """

    ALLOCATE = "allocate"
    DEALLOCATE = "deallocate"
    RESERVE = "reserve"
    SYNCHRONIZE = "synchronize"


@dataclass(frozen=True, slots=True)
class AllocationStep:
    """One step; address and size in bytes, 0 for SYNCHRONIZE."""

    kind: StepKind
    address: int = 0
    size: int = 0


class History(Enum):
    """How much the steps tell.

    COMPLETE: from the allocator's beginning on. PARTIAL: from some moment on, so that an address not seen
    before may be a free from before that moment as well as fresh; nothing is predicted for those.
    """

    COMPLETE = "complete"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class PredictedAllocation:
    """One allocation: its size, the address it got, and the predicted one, None when the driver chooses."""

    size: int
    recorded: int
    predicted: int | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """All allocations of the steps, in order."""

    allocations: tuple[PredictedAllocation, ...]

    @property
    def reused(self) -> int:
        """Allocations for which a reused address was predicted."""
        return sum(allocation.predicted is not None for allocation in self.allocations)

    @property
    def correct(self) -> int:
        """Those for which it was the recorded one."""
        return sum(allocation.predicted == allocation.recorded for allocation in self.allocations)

    @property
    def misses(self) -> tuple[PredictedAllocation, ...]:
        """Those for which it was another one."""
        return tuple(a for a in self.allocations if a.predicted is not None and a.predicted != a.recorded)


class _PendingFree(DeferredOperation):
    __slots__ = ("address",)

    def __init__(self, address: int, rounded_size: int) -> None:
        super().__init__(rounded_size, (rounded_size, False))
        self.address = address


class ReusePredictor:
    """The allocator's queue of pending frees, without memory."""

    def __init__(self, history: History = History.COMPLETE, granularity: int = GRANULARITY) -> None:
        self._history = history
        self._granularity = granularity
        self._pending: DeferredOperations[_PendingFree] = DeferredOperations(_ignore, XLA_BATCH)
        self._pending_at: dict[int, _PendingFree] = {}
        self._active: set[int] = set()
        self._seen: set[int] = set()
        self._reserved: list[range] = []

    def allocate(self, size: int, recorded: int) -> int | None:
        """Predicts the address of ``size`` bytes, then takes note that it was ``recorded``.

        Returns:
          The predicted address; None when no pending free fits and the driver chooses.
        """
        oldest = self._pending.oldest_reusable((round_up(size, self._granularity), False))
        if self._history is History.PARTIAL and recorded not in self._seen:
            # Fresh, or the allocator knew a free older than ours.
            oldest = None
        if oldest is not None and oldest.address != recorded:
            self._learn_from_miss(oldest, recorded)
        if recorded in self._pending_at:
            self._drop(self._pending_at[recorded])
        self._active.add(recorded)
        self._seen.add(recorded)
        return None if oldest is None else oldest.address

    def deallocate(self, address: int, size: int) -> None:
        """Takes note of a free. That of a buffer placed in a reservation cannot be reused elsewhere."""
        if address in self._active:
            self._active.remove(address)
        elif any(address in reserved for reserved in self._reserved):
            return
        self._seen.add(address)
        free = self._pending_at[address] = _PendingFree(address, round_up(size, self._granularity))
        self._pending.defer(free)

    def reserve(self, address: int, size: int) -> None:
        """Takes note of a range for remapping."""
        self._reserved.append(range(address, address + size))

    def synchronize(self) -> None:
        """Takes note that every pending free was completed."""
        for free in list(self._pending):
            self._drop(free)

    def _learn_from_miss(self, expected: _PendingFree, recorded: int) -> None:
        """Brings the queue back in line after a completion of frees that the steps do not show.

        The rule has no exceptions, so the expected free, and whatever was freed before it, had been
        completed. If the allocator chose another pending free, so had all of that size before the chosen
        one; if it chose none, all.
        """
        chosen = self._pending_at.get(recorded)
        completed = list(self._pending)
        if chosen is not None and chosen.reuse_key == expected.reuse_key:
            older = completed[: completed.index(chosen)]
            last = max(index for index, free in enumerate(older) if free.reuse_key == expected.reuse_key)
            completed = older[: last + 1]
        for free in completed:
            self._drop(free)

    def _drop(self, free: _PendingFree) -> None:
        self._pending.take(free)
        del self._pending_at[free.address]


def _ignore(seqno: int) -> None:
    """A timeline that nobody waits for."""


def predict_addresses(
    steps: Iterable[AllocationStep], history: History, granularity: int = GRANULARITY
) -> Prediction:
    """Predicts every allocation of ``steps``; zero-size ones are left out, as the allocator hands out null.

    Args:
      steps: in order.
      history: how much they tell.
      granularity: bytes to which the allocator rounds sizes.
    """
    predictor = ReusePredictor(history, granularity)
    allocations = []
    for step in steps:
        if step.kind is StepKind.SYNCHRONIZE:
            predictor.synchronize()
        elif step.kind is StepKind.RESERVE:
            predictor.reserve(step.address, step.size)
        elif step.address and step.kind is StepKind.DEALLOCATE:
            predictor.deallocate(step.address, step.size)
        elif step.address:
            predicted = predictor.allocate(step.size, step.address)
            allocations.append(PredictedAllocation(step.size, step.address, predicted))
    return Prediction(tuple(allocations))


def steps_of_recording(lines: Iterable[Mapping[str, Any]]) -> Iterator[AllocationStep]:
    """The steps of a whole process's recording (``allocator-<MODE>.jsonl``), one mapping per line.

    An executable that reserved a range for remapping between a scenario's ``begin`` and ``end`` marks is
    torn down behind them, and that completes every pending free. The moment is not in the recording; it is
    taken to be just before the next allocation, because the frees of the scenario's last buffers come first.

    Raises:
      InputError: a line lacks a field.
    """
    remapped = torn_down = False
    for number, line in enumerate(lines, 1):
        try:
            mark, operation = line.get("mark"), line.get("op")
            if mark == "begin":
                remapped = False
            elif mark == "end":
                torn_down, remapped = torn_down or remapped, False
            elif operation == "reserve":
                remapped = True
            if operation == "allocate" and torn_down:
                torn_down = False
                yield AllocationStep(StepKind.SYNCHRONIZE)
            if operation in ("allocate", "deallocate", "reserve"):
                yield AllocationStep(StepKind(operation), line["address"], line["size"])
        except KeyError as error:
            raise InputError(f"line {number} of the allocator recording has no {error}") from None


def steps_of_trace(trace: Mapping[str, Any]) -> Iterator[AllocationStep]:
    """The steps of one scenario's recording (``<scenario>/<MODE>.json``); they are a ``PARTIAL`` history.

    Raises:
      InputError: an event lacks a field.
    """
    events: list[Mapping[str, Any]] = []
    for execution in trace.get("executions", ()):
        events += execution.get("events", ())
        events += execution.get("events_after", ())
    events += trace.get("thread_events", ())
    for event in events:
        try:
            kind = event["kind"]
            if kind in ("allocate", "deallocate"):
                yield AllocationStep(StepKind(kind), event["address"], event["size"])
            elif kind == "reserve":
                yield AllocationStep(StepKind.RESERVE, event["address"], event["total_size"])
        except KeyError as error:
            raise InputError(f"an event of the trace has no {error}") from None
