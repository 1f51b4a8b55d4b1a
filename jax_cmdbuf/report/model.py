"""The plan of a compiled program: which commands, which allocations, and what each update mode makes of them.

Pure data, folded from the executable, the conversion into command buffers and the policy of each mode;
every report prints from here. Invariant: allocation rows are in index order, one for each allocation of the
executable, and each carries one verdict for each mode of ``POLICIES``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.executable.conversion import Conversion, command_buffer_allocations
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.thunks import PRIVATE_ALLOCATION_KINDS, Thunk
from jax_cmdbuf.runtime.commands import Command, command_list
from jax_cmdbuf.runtime.policy import POLICIES, AllocationVerdict, Classification, classify
from xla_flags.options import CommandBufferUpdateMode

__all__ = [
    "RESERVATION_GRANULARITY",
    "AllocationRow",
    "ModeSummary",
    "Plan",
    "PlanContext",
    "ScratchTrap",
    "make_plan",
    "recorded_thunks",
    "visible",
]

# Physical memory is mapped in pieces of this size on every GPU that XLA's VMM allocator has been seen on.
RESERVATION_GRANULARITY = 2 << 20
# A live-out allocation is called a trap if at least this share of all commands, and this many, touch it.
_TRAP_SHARE = 0.5
_TRAP_COMMANDS = 4


@dataclass(frozen=True)
class PlanContext:
    """What is known about a program beside its executable.

    Attributes:
      target: what it was compiled for: a target's name, or the model that the executable describes.
      gpu: model of the GPU, where ``target`` is a name for it.
      arguments: path of each entry parameter, in order; empty: the executable's own names are used.
      results: path of each result leaf, in order; empty: "out[i]".
      xla_flags: flags that differ from their default: name -> value.
      versions: distribution -> version.
      notes: what was assumed, one sentence each.
      warnings: what the reader must know before believing the plan, one sentence each.
    """

    target: str
    gpu: str = ""
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    xla_flags: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def target_text(self) -> str:
        """For people: "h200 (NVIDIA H200)"."""
        return f"{self.target} ({self.gpu})" if self.gpu not in ("", self.target) else self.target


@dataclass(frozen=True)
class AllocationRow:
    """One allocation.

    Attributes:
      allocation: XLA's facts.
      path: argument path ("params['w']"), else result path ("out[1]"), else the constant's name, else None.
      results: paths of the results it holds when the program ends.
      commands: how many commands use it.
      instructions: HLO instructions whose thunks use it, in program order.
      values: HLO values that live in it.
      verdicts: update mode -> role and reason.
    """

    allocation: BufferAllocation
    path: str | None
    results: tuple[str, ...]
    commands: int
    instructions: tuple[str, ...]
    values: tuple[str, ...]
    verdicts: Mapping[CommandBufferUpdateMode, AllocationVerdict]

    @property
    def kind(self) -> str:
        """One word: parameter, constant, output, thread-local or temp."""
        allocation = self.allocation
        if allocation.is_entry_computation_parameter:
            return "parameter"
        if allocation.is_constant:
            return "constant"
        if allocation.maybe_live_out:
            return "output"
        return "thread-local" if allocation.is_thread_local else "temp"

    @property
    def label(self) -> str:
        """What to call it: its path and the results it becomes, or the values that live in it.

        The tail that a result's path shares with the argument's stands only once:
        "state.params['w'] → out[0]…" for "out[0].params['w']".
        """
        if self.path is None:
            names = self.values or self.instructions
            return ", ".join(names[:3]) + (f", … {len(names)} values" if len(names) > 3 else "")
        others = [_without_tail(each, self.path) for each in self.results if each != self.path]
        return " → ".join([self.path, *others])

    @property
    def is_donated(self) -> bool:
        """Whether it is an argument whose memory becomes a result."""
        return self.allocation.is_entry_computation_parameter and self.allocation.maybe_live_out


_STEP = re.compile(r"\[[^\]]*\]|\.\w+|^\w+")


def _without_tail(path: str, other: str) -> str:
    """``path`` without the last steps that ``other`` ends with too."""
    steps, others = _STEP.findall(path), _STEP.findall(other)
    common = 0
    while common < min(len(steps), len(others)) - 1 and steps[-1 - common] == others[-1 - common]:
        common += 1
    return path if common == 0 else "".join(steps[: len(steps) - common]) + "…"


@dataclass(frozen=True)
class ModeSummary:
    """One update mode over the whole program.

    Attributes:
      classification: its classes of allocations.
      commands: commands in all command buffers.
      updated_if_outputs_move: commands still updated each step if every output, and nothing else, moves.
      updated_at_worst: commands updated in a step in which everything not persistent moves.
      reserved_bytes: virtual memory the automatic temps occupy, each rounded up to 2 MiB.
      reserved_bytes_at_most: the same if every candidate is selected too.
      padding_bytes: what rounding adds to ``reserved_bytes_at_most``.
    """

    classification: Classification
    commands: int
    updated_if_outputs_move: int
    updated_at_worst: int
    reserved_bytes: int
    reserved_bytes_at_most: int
    padding_bytes: int

    @property
    def mode(self) -> CommandBufferUpdateMode:
        """The mode."""
        return self.classification.mode

    @property
    def share_if_outputs_move(self) -> float:
        """``updated_if_outputs_move`` as a share of all commands, 0 to 1."""
        return self.updated_if_outputs_move / self.commands if self.commands else 0.0


@dataclass(frozen=True, slots=True)
class ScratchTrap:
    """A result's memory that XLA also uses as scratch, so that moving the result updates many commands.

    Attributes:
      row: the allocation.
      commands: commands that touch it.
      total: commands in all.
    """

    row: AllocationRow
    commands: int
    total: int


@dataclass(frozen=True)
class Plan:
    """Everything there is to show.

    Attributes:
      executable: the compiled program.
      conversion: its command buffers, and why other thunks are in none.
      context: names, flags, versions and notes.
      commands: the commands of each command buffer, in ``conversion.command_buffers`` order.
      allocations: one row for each allocation.
      modes: one summary for each update mode.
      traps: live-out allocations that most commands use as scratch, worst first.
    """

    executable: Executable
    conversion: Conversion
    context: PlanContext
    commands: tuple[tuple[Command, ...], ...]
    allocations: tuple[AllocationRow, ...]
    modes: tuple[ModeSummary, ...]
    traps: tuple[ScratchTrap, ...]

    @cached_property
    def command_count(self) -> int:
        """Commands in all command buffers."""
        return sum(map(len, self.commands))

    @property
    def effective_mode(self) -> CommandBufferUpdateMode | None:
        """The update mode that the program was compiled with, or None where this package does not know it."""
        value = self.executable.debug_options.get("xla_gpu_command_buffer_update_mode", "ALWAYS_UPDATE")
        return next((mode for mode in POLICIES if mode.name == value), None)

    def summary(self, mode: CommandBufferUpdateMode) -> ModeSummary:
        """The summary of one mode."""
        return next(summary for summary in self.modes if summary.mode is mode)


def make_plan(executable: Executable, conversion: Conversion, context: PlanContext) -> Plan:
    """Folds what is known about a program into its plan."""
    unroll = bool(executable.debug_options.get("xla_gpu_command_buffer_unroll_loops", False))
    commands = tuple(
        tuple(command_list(buffer.commands, unroll).commands) for buffer in conversion.command_buffers
    )
    used = command_buffer_allocations(conversion)
    classes = {mode: classify(executable.allocations, used, mode) for mode in POLICIES}
    rows = _rows(executable, context, commands, classes)
    return Plan(
        executable,
        conversion,
        context,
        commands,
        rows,
        modes=tuple(_summary(executable, commands, used, each) for each in classes.values()),
        traps=_traps(rows, sum(map(len, commands))),
    )


def _rows(
    executable: Executable,
    context: PlanContext,
    commands: Sequence[Sequence[Command]],
    classes: Mapping[CommandBufferUpdateMode, Classification],
) -> tuple[AllocationRow, ...]:
    counts: dict[int, int] = defaultdict(int)
    for buffer in commands:
        for command in buffer:
            for index in command.allocations:
                counts[index] += 1
    results = _results(executable, context)
    instructions = _instructions(executable)
    constants = {constant.allocation: constant.symbol for constant in executable.constants}
    return tuple(
        AllocationRow(
            allocation,
            path=_argument(executable, context, allocation)
            or next(iter(results[allocation.index]), None)
            or constants.get(allocation.index),
            results=tuple(results[allocation.index]),
            commands=counts[allocation.index],
            instructions=tuple(instructions[allocation.index]),
            values=executable.hlo_uses.get(allocation.index, ()),
            verdicts={mode: each.verdicts[allocation.index] for mode, each in classes.items()},
        )
        for allocation in executable.allocations
    )


def _argument(executable: Executable, context: PlanContext, allocation: BufferAllocation) -> str | None:
    number = allocation.parameter_number
    if number is None:
        return None
    for names in (context.arguments, executable.parameter_paths, executable.parameter_names):
        if number < len(names) and names[number]:
            return names[number] + "".join(f"[{index}]" for index in allocation.parameter_shape_index)
    return f"parameter {number}"


def _results(executable: Executable, context: PlanContext) -> dict[int, list[str]]:
    """Allocation -> paths of the results in it; the table of a tuple result is named after the whole."""
    paths: dict[int, list[str]] = defaultdict(list)
    leaves = [output for output in executable.outputs if output.allocation not in _tuple_tables(executable)]
    named = len(leaves) == len(context.results)
    for number, output in enumerate(sorted(leaves, key=lambda output: output.shape_index)):
        own = "out" + "".join(f"[{index}]" for index in output.shape_index)
        paths[output.allocation].append(context.results[number] if named else own)
    for output in executable.outputs:
        if output not in leaves:
            paths[output.allocation].append("out" + "".join(f"[{index}]" for index in output.shape_index))
    return paths


def _tuple_tables(executable: Executable) -> frozenset[int]:
    """Live-out allocations that hold only the pointers of a tuple: an output with other outputs below it."""
    indices = [output.shape_index for output in executable.outputs]
    return frozenset(
        output.allocation
        for output in executable.outputs
        if any(other[: len(output.shape_index)] == output.shape_index != other for other in indices)
    )


def _instructions(executable: Executable) -> dict[int, list[str]]:
    names: dict[int, list[str]] = defaultdict(list)
    for top in executable.thunks:
        for thunk in visible(top):
            for use in thunk.own_uses:
                found = names[use.slice.allocation]
                if thunk.name not in found[-1:]:
                    found.append(thunk.name)
    return defaultdict(list, {index: list(dict.fromkeys(found)) for index, found in names.items()})


def _summary(
    executable: Executable,
    commands: Sequence[Sequence[Command]],
    used: frozenset[int],
    classification: Classification,
) -> ModeSummary:
    persistent = frozenset(classification.persistent)
    outputs = frozenset(
        each.index
        for each in executable.allocations
        if each.maybe_live_out and not each.is_entry_computation_parameter
    )
    sizes = {each.index: each.size for each in executable.allocations}
    least = sum(_rounded(sizes[index]) for index in classification.va_remapped)
    most = least + sum(_rounded(sizes[index]) for index in classification.candidates)
    selected = (*classification.va_remapped, *classification.candidates)
    return ModeSummary(
        classification,
        commands=sum(map(len, commands)),
        updated_if_outputs_move=_updated(commands, (used & outputs) - persistent),
        updated_at_worst=_updated(commands, used - persistent),
        reserved_bytes=least,
        reserved_bytes_at_most=most,
        padding_bytes=most - sum(sizes[index] for index in selected),
    )


def _updated(commands: Sequence[Sequence[Command]], moved: frozenset[int]) -> int:
    """Commands that XLA records again when the addresses of ``moved`` changed (``CommandList.updated``)."""
    return sum(
        command.requires_update_on_execute or not moved.isdisjoint(command.allocations)
        for buffer in commands
        for command in buffer
    )


def _rounded(size: int) -> int:
    return -(-size // RESERVATION_GRANULARITY) * RESERVATION_GRANULARITY


def _traps(rows: Sequence[AllocationRow], total: int) -> tuple[ScratchTrap, ...]:
    traps = [
        ScratchTrap(row, row.commands, total)
        for row in rows
        if row.kind == "output"
        and row.commands >= max(_TRAP_COMMANDS, _TRAP_SHARE * total)
        and len(row.values) > 1
    ]
    return tuple(sorted(traps, key=lambda trap: (-trap.commands, trap.row.allocation.index)))


def visible(thunk: Thunk) -> Iterator[Thunk]:
    """The thunk and every nested one whose slices name the executable's allocations, in program order."""
    yield thunk
    if thunk.kind in PRIVATE_ALLOCATION_KINDS:
        return
    for thunks in thunk.nested:
        for nested in thunks:
            yield from visible(nested)


def recorded_thunks(plan: Plan) -> frozenset[int]:
    """Ids of the thunks that some command buffer records, nested ones included."""
    return frozenset(
        thunk.id
        for buffer in plan.conversion.command_buffers
        for top in buffer.commands
        for thunk in top.walk()
    )
