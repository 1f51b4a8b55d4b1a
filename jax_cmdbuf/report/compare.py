"""Two plans of one program, compiled with different flags: what differs, then both.

Invariant: allocations are matched by path, thunks by HLO instruction, never by number: XLA numbers both
  anew in
every compilation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jax_cmdbuf.report.json_plan import plan_as_dict
from jax_cmdbuf.report.model import AllocationRow, Plan, recorded_thunks
from jax_cmdbuf.report.units import bytes_text, flag_text, share_text

__all__ = ["Comparison", "Difference", "comparison_as_dict"]

_ABSENT = "—"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs: what it is, and what each side has."""

    what: str
    left: str
    right: str


@dataclass(frozen=True)
class Comparison:
    """Two plans.

    Attributes:
      left, right: the plans.
      labels: what each was compiled with.
    """

    left: Plan
    right: Plan
    labels: tuple[str, str]

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """What differs, the whole before the parts; empty: nothing."""
        found = (
            *_flags(self.left, self.right),
            *_totals(self.left, self.right),
            *_grouping(self.left, self.right),
            *_allocations(self.left, self.right),
        )
        return tuple(each for each in found if each.left != each.right)


def comparison_as_dict(comparison: Comparison) -> dict[str, Any]:
    """As data: ``labels``, ``differences`` (``what``, ``left``, ``right``) and ``plans``."""
    return {
        "labels": list(comparison.labels),
        "differences": [
            {"what": each.what, "left": each.left, "right": each.right} for each in comparison.differences
        ],
        "plans": [plan_as_dict(comparison.left), plan_as_dict(comparison.right)],
    }


def _flags(left: Plan, right: Plan) -> Iterator[Difference]:
    ours, theirs = left.context.xla_flags, right.context.xla_flags
    for name in sorted({*ours, *theirs}):
        sides = [flag_text(flags[name]) if name in flags else "default" for flags in (ours, theirs)]
        yield Difference(f"flag {name}", *sides)


def _totals(left: Plan, right: Plan) -> Iterator[Difference]:
    for what, ours, theirs in zip(_TOTALS, _total_values(left), _total_values(right), strict=True):
        yield Difference(what, ours, theirs)
    for ours_mode, theirs_mode in zip(left.modes, right.modes, strict=True):
        name = ours_mode.mode.name
        sides = (ours_mode, theirs_mode)
        for what, values in (
            ("persistent allocations", [str(len(side.classification.persistent)) for side in sides]),
            ("candidates", [str(len(side.classification.candidates)) for side in sides]),
            (
                "updated if only outputs move",
                [share_text(side.updated_if_outputs_move, side.commands) for side in sides],
            ),
            ("updated at worst", [share_text(side.updated_at_worst, side.commands) for side in sides]),
            ("reserved addresses, at most", [bytes_text(side.reserved_bytes_at_most) for side in sides]),
        ):
            yield Difference(f"{name}: {what}", *values)


_TOTALS = (
    "thunks",
    "command buffers",
    "commands in them",
    "thunks outside",
    "kinds of thunks",
    "memory for temporaries",
    "memory for outputs",
    "memory for constants",
)


def _total_values(plan: Plan) -> tuple[str, ...]:
    thunks = [thunk for top in plan.executable.thunks for thunk in top.walk()]
    kinds = Counter(thunk.kind for thunk in thunks)

    def memory(kind: str) -> str:
        return bytes_text(sum(row.allocation.size for row in plan.allocations if row.kind == kind))

    return (
        str(len(thunks)),
        str(len(plan.conversion.command_buffers)),
        str(plan.command_count),
        str(len(plan.conversion.left_out)),
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        memory("temp"),
        memory("output"),
        memory("constant"),
    )


def _grouping(left: Plan, right: Plan) -> Iterator[Difference]:
    """Where each instruction runs, for those whose place differs."""
    ours, theirs = _places(left), _places(right)
    for name in dict.fromkeys((*ours, *theirs)):
        yield Difference(f"instruction {name}", ours.get(name, _ABSENT), theirs.get(name, _ABSENT))


def _places(plan: Plan) -> dict[str, str]:
    recorded = recorded_thunks(plan)
    places: dict[str, str] = {}
    for top in plan.executable.thunks:
        for thunk in top.walk():
            left_out = plan.conversion.left_out.get(thunk.id)
            if left_out is not None:
                places[thunk.name] = f"outside: {left_out.detail}"
            elif thunk.id in recorded:
                places.setdefault(thunk.name, "in a command buffer")
    return places


def _allocations(left: Plan, right: Plan) -> Iterator[Difference]:
    ours, theirs = _by_path(left), _by_path(right)
    for path in dict.fromkeys((*ours, *theirs)):
        yield Difference(f"allocation {path}", _described(ours.get(path)), _described(theirs.get(path)))


def _by_path(plan: Plan) -> dict[str, AllocationRow]:
    rows = [row for row in plan.allocations if row.kind in ("parameter", "output") and row.path]
    return {row.path: row for row in rows if row.path}


def _described(row: AllocationRow | None) -> str:
    if row is None:
        return _ABSENT
    roles = "/".join(verdict.role.value for verdict in row.verdicts.values())
    return f"{bytes_text(row.allocation.size)}, {row.commands} commands, {roles}"
