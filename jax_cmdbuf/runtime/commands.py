"""Thunks -> commands: which commands a command buffer holds, and which of them an address change touches.

Mirrors ``xla/backends/gpu/runtime/command_buffer_cmd_emitter.cc`` and the skip rule of
``command_executor.cc``. Pure: commands hold no state. Invariant: creating and updating visit the same
commands in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType

from jax_cmdbuf.executable.thunks import DynamicSliceFusionInfo, Thunk, ThunkKind, WhileInfo

__all__ = ["COMMAND_RULES", "Command", "CommandList", "CommandRule", "CommandShape", "command_list"]


class CommandShape(Enum):
    """What a thunk becomes.

    LEAF: one command. INLINE: its nested thunks' commands stand in its place. NOTHING: no command.
    BRANCHES, LOOP, SLICES: one command with nested command lists (conditional, while, dynamic slice fusion).
    """

    LEAF = "leaf"
    INLINE = "inline"
    NOTHING = "nothing"
    BRANCHES = "branches"
    LOOP = "loop"
    SLICES = "slices"


@dataclass(frozen=True, slots=True)
class CommandRule:
    """How a kind of thunk is recorded.

    Attributes:
      shape: what the thunk becomes.
      requires_warmup: the first execution runs the whole command buffer as plain thunks.
      requires_update_on_initialize: recorded again before every execution that has dynamic allocations, so
        that all ranks record together.
    """

    shape: CommandShape = CommandShape.LEAF
    requires_warmup: bool = False
    requires_update_on_initialize: bool = False


_COLLECTIVE = CommandRule(requires_warmup=True, requires_update_on_initialize=True)

# Kinds that are not here become one command without conditions.
COMMAND_RULES: Mapping[ThunkKind, CommandRule] = MappingProxyType(
    {
        ThunkKind("kAsyncStart"): CommandRule(CommandShape.INLINE),
        ThunkKind("kAsyncDone"): CommandRule(CommandShape.NOTHING),
        ThunkKind("kSequential"): CommandRule(CommandShape.INLINE),
        ThunkKind("kConditional"): CommandRule(CommandShape.BRANCHES),
        ThunkKind("kWhile"): CommandRule(CommandShape.LOOP),
        ThunkKind("kDynamicSliceFusion"): CommandRule(CommandShape.SLICES),
    }
    | {
        ThunkKind(kind): _COLLECTIVE
        for kind in (
            "kAllGather",
            "kAllReduce",
            "kAllToAll",
            "kCollectiveBroadcast",
            "kCollectiveKernel",
            "kCollectivePermute",
            "kGroup",
            "kRaggedAllToAll",
            "kRecv",
            "kReduceScatter",
            "kSend",
        )
    }
)
_LEAF = CommandRule()


@dataclass(frozen=True)
class Command:
    """One command of a command buffer.

    Attributes:
      thunk: what it records.
      allocations: indices it uses, nested ones included.
      children: the nested command lists, in the order in which XLA records them (a list may come twice).
      children_inherit: whether a nested command whose allocations did not change is skipped; a dynamic slice
        fusion records all of its nested commands again, because their addresses depend on the offsets.
      requires_update_on_execute: updated whenever the command buffer executes.
      requires_warmup, requires_update_on_initialize: see ``CommandRule``; nested commands count.
    """

    thunk: Thunk
    allocations: frozenset[int]
    children: tuple[CommandList, ...] = ()
    children_inherit: bool = True
    requires_update_on_execute: bool = False
    requires_warmup: bool = False
    requires_update_on_initialize: bool = False


@dataclass(frozen=True)
class CommandList:
    """Commands recorded together (XLA's ``CommandExecutor``)."""

    commands: tuple[Command, ...]

    def __len__(self) -> int:
        return len(self.commands)

    @cached_property
    def allocations(self) -> frozenset[int]:
        """Indices that some command uses."""
        return frozenset().union(*(command.allocations for command in self.commands))

    @cached_property
    def requires_update_on_execute(self) -> bool:
        """Whether some command must be updated at every execution."""
        return any(command.requires_update_on_execute for command in self.commands)

    @cached_property
    def requires_update_on_initialize(self) -> bool:
        """Whether some command must be recorded again before execution."""
        return any(command.requires_update_on_initialize for command in self.commands)

    @cached_property
    def requires_warmup(self) -> bool:
        """Whether the first execution must run as plain thunks."""
        return any(command.requires_warmup for command in self.commands)

    def updated(self, changed: frozenset[int] | None, is_initialization: bool = False) -> Iterator[int]:
        """Positions of the commands that an update records again.

        Args:
          changed: allocations whose address changed; None: unknown, so all commands.
          is_initialization: the update happens before execution, on behalf of collectives.
        """
        for position, command in enumerate(self.commands):
            if (
                changed is None
                or command.requires_update_on_execute
                or (is_initialization and command.requires_update_on_initialize)
                or not changed.isdisjoint(command.allocations)
            ):
                yield position


def command_list(thunks: Sequence[Thunk], unroll_loops: bool = False) -> CommandList:
    """The commands that record ``thunks``.

    Args:
      thunks: a list that the conversion pass put into a command buffer, or one nested in it.
      unroll_loops: ``xla_gpu_command_buffer_unroll_loops``: a loop of known trip count becomes that many
        copies.
    """
    return CommandList(tuple(_commands(thunks, unroll_loops)))


def _commands(thunks: Iterable[Thunk], unroll_loops: bool) -> Iterator[Command]:
    for thunk in thunks:
        rule = COMMAND_RULES.get(thunk.kind, _LEAF)
        match rule.shape:
            case CommandShape.NOTHING:
                continue
            case CommandShape.INLINE:
                for nested in thunk.nested:
                    yield from _commands(nested, unroll_loops)
            case CommandShape.LEAF:
                yield Command(
                    thunk,
                    thunk.allocations,
                    requires_warmup=rule.requires_warmup,
                    requires_update_on_initialize=rule.requires_update_on_initialize,
                )
            case _:
                yield _nesting_command(thunk, rule.shape, unroll_loops)


def _nesting_command(thunk: Thunk, shape: CommandShape, unroll_loops: bool) -> Command:
    lists = tuple(command_list(nested, unroll_loops) for nested in thunk.nested)
    offsets_move = isinstance(thunk.info, DynamicSliceFusionInfo) and thunk.info.loop_dependent
    return Command(
        thunk,
        thunk.allocations,
        children=_recording_order(thunk, shape, lists, unroll_loops),
        children_inherit=shape is not CommandShape.SLICES,
        requires_update_on_execute=offsets_move or any(each.requires_update_on_execute for each in lists),
        requires_warmup=any(each.requires_warmup for each in lists),
        requires_update_on_initialize=any(each.requires_update_on_initialize for each in lists),
    )


def _recording_order(
    thunk: Thunk, shape: CommandShape, lists: tuple[CommandList, ...], unroll_loops: bool
) -> tuple[CommandList, ...]:
    if shape is CommandShape.LOOP:
        condition, body = lists
        trip_count = thunk.info.trip_count if isinstance(thunk.info, WhileInfo) else None
        if unroll_loops and trip_count is not None:
            return (condition, body) * trip_count
        # The condition runs once before the loop node and once at the end of its body.
        return (condition, body, condition)
    if shape is CommandShape.BRANCHES and _is_predicate(thunk):
        # The thunk stores false, then true; the device's case node wants true first.
        return tuple(reversed(lists))
    return lists


def _is_predicate(conditional: Thunk) -> bool:
    """Whether the branch index is a one-byte predicate, not a four-byte number."""
    return len(conditional.nested) == 2 and any(use.slice.size == 1 for use in conditional.own_uses[:1])
