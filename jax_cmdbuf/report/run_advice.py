"""What went wrong in a run, and what to change in the code: rules over one function's report.

Each rule looks at one allocation that makes XLA update commands, or map other memory, in every step, and at
how
the calls passed it. Invariant: a piece of advice names an allocation whose address was seen to move, or that
the profile rejected; nothing is advised on a guess.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from jax_cmdbuf.report.run_model import Advice, AllocationRun, ArgumentUse, FunctionRun, Hazard
from jax_cmdbuf.runtime.policy import RoleReason
from jax_cmdbuf.runtime.profiling import CandidateReason

__all__ = ["advise", "find_hazards"]


def advise(function: FunctionRun, commands: Mapping[int, frozenset[int]]) -> tuple[Advice, ...]:
    """What to change, most commands first.

    Args:
      function: complete but for advice.
      commands: allocation -> the commands that use it.
    """
    groups: dict[tuple[str, str, str], list[AllocationRun]] = {}
    for row in function.allocations:
        for rule in _RULES:
            if (found := rule(row, function)) is not None:
                # What holds for one leaf of an argument mostly holds for all of them.
                groups.setdefault((found[0], _root(row.path), found[1]), []).append(row)
                break
    made = []
    for (action, _, text), rows in groups.items():
        indices = [index for row in rows for index in (row.index, *_results_of(row, function))]
        used = frozenset[int]().union(*(commands.get(index, ()) for index in indices))
        others = tuple(row.path for row in rows[1:])
        made.append(Advice(action, rows[0].path, others, len(used), text))
    made.sort(key=lambda each: -each.commands)
    return (*_advise_mode(function, commands), *made)


_Found = tuple[str, str] | None
_WRITE_INTO = (
    "write new values into one buffer that you keep: "
    "put = jax.jit(lambda old, new: old.at[...].set(new), donate_argnums=0)"
)


def _results_of(row: AllocationRun, function: FunctionRun) -> list[int]:
    """Allocations of the results that are the argument in the next call; they move for the same reason."""
    if row.use is None or not row.use.result:
        return []
    return [each.index for each in function.allocations if each.path == row.use.result]


def _root(path: str) -> str:
    """The parameter that a path begins with."""
    name = re.match(r"\w+", path)
    return name.group() if name else ""


def _moves(row: AllocationRun) -> bool:
    """Whether commands that use it are updated for it, or it was rejected because it moves."""
    return row.reason == CandidateReason.MOVED.value or (row.moves > 0 and row.state != "remapped")


def _moves_late(row: AllocationRun) -> bool:
    return row.state == "remapped" and row.is_argument and row.moves > 0


def _is_fed_back(use: ArgumentUse) -> bool:
    """Whether it mostly is a result of the call before; the first call has none before it."""
    return 2 * use.fed_back > use.calls - 1


def _pass_once(row: AllocationRun, function: FunctionRun) -> _Found:
    if row.reason != CandidateReason.SHARED_BUFFER.value:
        return None
    other = row.use.same_as if row.use is not None else ""
    text = (
        f"one buffer with {other or 'another argument'}, so neither is remapped: pass it once, or give one "
        "of "
        "them a copy of its own (jnp.copy) before the loop"
    )
    return "pass once", text


def _copy_in(row: AllocationRun, function: FunctionRun) -> _Found:
    if row.reason != CandidateReason.NOT_VMM_BACKED.value:
        return None
    text = (
        "in memory that XLA's allocator did not hand out (DLPack, another library): copy it once with "
        "jnp.copy "
        "and pass the copy"
    )
    return "copy in", text


def _keep_alive_after_profile(row: AllocationRun, function: FunctionRun) -> _Found:
    if not _moves_late(row):
        return None
    text = (
        f"at one address while it was profiled, but moved {_times(row.moves)} since, and each move costs an "
        "unmap, a wait and a map: keep the array alive and pass the same one"
    )
    return "keep alive", text


def _upload_once(row: AllocationRun, function: FunctionRun) -> _Found:
    use = row.use
    if not _moves(row) or use is None or 2 * use.host <= use.calls:
        return None
    share = f"in {use.host} of {use.calls} calls"
    if 2 * use.host_kept > use.host - 1 > 0:
        text = (
            f"the same {use.kind} {share}, uploaded anew each time: put it on the device once, with "
            "jax.device_put before the loop, and pass that"
        )
    elif use.kind in ("float", "int", "bool", "complex"):
        text = (
            f"a Python {use.kind} {share}, uploaded anew each time: pass jnp.asarray of it, made once per "
            "value, "
            "or make it a static argument if it has few values"
        )
    else:
        text = f"a new {use.kind} {share}, uploaded to wherever memory is free: {_WRITE_INTO}"
    return "upload once", text


def _donate(row: AllocationRun, function: FunctionRun) -> _Found:
    use = row.use
    if not _moves(row) or use is None or not _is_fed_back(use) or use.donated:
        return None
    text = (
        "a result of the call before and not donated, so old and new change places: donate it "
        f"(donate_argnames={_root(row.path)!r}), then the result takes its memory"
    )
    return "donate", text


def _keep_alive(row: AllocationRun, function: FunctionRun) -> _Found:
    use = row.use
    if not row.is_argument or not _moves(row):
        return None
    if use is not None and use.donated and _is_fed_back(use):
        text = (
            "donated, but the result that it comes from has memory of its own: XLA gives it the argument's "
            "only "
            "if shape and type are equal and nothing else needs both"
        )
        return "donate", text
    if use is not None and use.source:
        text = (
            f"another array in each call, a result of {use.source}: that result keeps its place if it is "
            "given "
            f"back to {use.source} as an argument that is donated"
        )
        return "keep alive", text
    return "keep alive", f"another array in each call: make it once and keep it alive, or {_WRITE_INTO}"


def _reuse_result(row: AllocationRun, function: FunctionRun) -> _Found:
    """The VMM allocator reuses the oldest free memory first, so a dropped result's place goes to another."""
    if row.is_argument or not row.is_result or not _moves(row):
        return None
    uses = [each.use for each in function.allocations if each.use is not None]
    if any(use.result == row.path and _is_fed_back(use) for use in uses):
        return None  # advised for the argument
    text = (
        "memory of its own, at another place in each call even if the last one was dropped: hand the last "
        "one back as an argument 'out' that is donated (donate_argnames='out', keep_unused=True), and the "
        "new one takes its place"
    )
    return "reuse result", text


_RULES: tuple[Callable[[AllocationRun, FunctionRun], _Found], ...] = (
    _pass_once,
    _copy_in,
    _keep_alive_after_profile,
    _upload_once,
    _donate,
    _keep_alive,
    _reuse_result,
)


def _advise_mode(function: FunctionRun, commands: Mapping[int, frozenset[int]]) -> Iterator[Advice]:
    """An update mode that gives temporaries fixed addresses, where they are all that moves."""
    temps = [each for each in function.allocations if each.reason == RoleReason.TEMP.value and _moves(each)]
    if not temps or not function.updated_per_step:
        return
    used = frozenset[int]().union(*(commands.get(row.index, ()) for row in temps))
    text = (
        "temporaries move from call to call: update_mode='SKIP_TEMP' gives them fixed addresses, "
        "'SKIP_PROFILED' also what stays among arguments and results"
    )
    yield Advice("remap temporaries", temps[0].path, tuple(each.path for each in temps[1:]), len(used), text)


def find_hazards(function: FunctionRun) -> tuple[Hazard, ...]:
    """What goes wrong, or would on the GPU."""
    return (*_failures(function), *_phases(function), *_late_moves(function), *_aliases(function))


def _failures(function: FunctionRun) -> Iterator[Hazard]:
    where = "would fail on the GPU" if function.runtime == "simulated" else "failed"
    for text, count in Counter(each.error for each in function.executions if each.error).items():
        first = next(n for n, each in enumerate(function.executions) if each.error == text) + function.first
        yield Hazard("error", f"{_executions(count)} {where}, the first is number {first}: {text}")


def _phases(function: FunctionRun) -> Iterator[Hazard]:
    if function.requested != function.effective:
        remedy = f" ({function.remedy})" if function.remedy else ""
        yield Hazard(
            "mode",
            f"{function.requested} was requested, {function.effective} is effective: "
            f"{function.reason}{remedy}",
        )
    if function.problem:
        yield Hazard("plan", f"its profile is not kept: {function.problem}")
    if function.phase == "profiling" and function.calls <= function.limit:
        yield Hazard(
            "short",
            f"it ran {_times(function.calls)}; SKIP_PROFILED decides when execution {function.limit + 1} "
            "begins",
        )
    elif function.phase == "profiling" and function.failures:
        yield Hazard(
            "short", f"{_executions(function.failures)} failed, and only those that succeed are profiled"
        )
    if function.phase == "disabled" and function.commands:
        yield Hazard("disabled", "nothing proved stable, so XLA remaps nothing and compares every address")


def _late_moves(function: FunctionRun) -> Iterator[Hazard]:
    late = [each for each in function.allocations if _moves_late(each)]
    if late:
        names = ", ".join(each.path for each in late[:4]) + (", ..." if len(late) > 4 else "")
        moves = sum(each.moves for each in late)
        yield Hazard(
            "late move",
            f"{names} moved after the profile was decided ({_times(moves)}): XLA maps other memory each "
            "time, which "
            "costs more than updating commands",
        )


def _aliases(function: FunctionRun) -> Iterator[Hazard]:
    """One buffer for two arguments is harmless until both are remapped; then XLA fails the call."""
    selected = set(function.selected)
    for row in function.allocations:
        use = row.use
        if use is not None and use.same_as and row.index in selected:
            yield Hazard(
                "shared buffer",
                f"{row.path} and {use.same_as} were one array in some call though they are remapped: XLA "
                "fails such a "
                "call with ALREADY_EXISTS",
            )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _executions(count: int) -> str:
    return "1 execution" if count == 1 else f"{count} executions"
