"""Thunks -> thunks with command buffers, and a reason for every thunk left outside.

Mirrors ``xla/backends/gpu/runtime/command_buffer_conversion_pass.cc``. Invariant: flattening the command
buffers of the result gives back the executable's thunks, in order, each exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.async_regions import OpenStreams, find_region
from jax_cmdbuf.executable.eligibility import (
    Configuration,
    LeftOutReason,
    Refusal,
    label,
    refusal,
    refusal_of_region,
)
from jax_cmdbuf.executable.executable import DeviceDescription, Executable
from jax_cmdbuf.executable.ffi_traits import FFI_TRAITS
from jax_cmdbuf.executable.thunks import PRIVATE_ALLOCATION_KINDS, AsyncInfo, CustomCallInfo, Thunk, ThunkKind

__all__ = [
    "COMMAND_BUFFER",
    "CommandBuffer",
    "Conversion",
    "LeftOut",
    "LeftOutReason",
    "command_buffer_allocations",
    "convert",
]


COMMAND_BUFFER = ThunkKind("kCommandBuffer")
_WRAPPERS = frozenset({"kAsyncStart", "kAsyncDone", "kGroup", "kSequential"})


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A thunk outside every command buffer.

    Attributes:
      thunk: the thunk.
      reason: the class of reason.
      detail: one sentence part with the numbers and names, for example "3 thunks <
      xla_gpu_graph_min_graph_size=5".
    """

    thunk: Thunk
    reason: LeftOutReason
    detail: str


@dataclass(frozen=True, slots=True)
class CommandBuffer:
    """One command buffer.

    Attributes:
      commands: its top-level thunks in order (a while or conditional among them is recorded whole).
      path: where its list is: (id of the enclosing thunk, index of the nested list) from the outside in;
        empty for the program's own list.
      allocations: indices of every allocation its thunks, nested ones included, use.
    """

    commands: tuple[Thunk, ...]
    path: tuple[tuple[int, int], ...] = ()
    allocations: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """XLA's annotation: ``command_buffer_<id of its first thunk>``."""
        return f"command_buffer_{self.commands[0].id}"


@dataclass(frozen=True)
class Conversion:
    """What the conversion pass made of a program.

    Attributes:
      sequence: the program after the pass; a command buffer is a thunk of kind "kCommandBuffer", id -1, whose
        only nested list is its commands. Loop bodies and branches are rewritten in place.
      command_buffers: all command buffers in program order, those in loop bodies and branches included.
      left_out: thunk id -> why the thunk is in no command buffer (thunks nested in a left-out thunk
      included).
      notes: what was assumed and from where (device description, FFI traits, rules), one sentence each.
    """

    sequence: tuple[Thunk, ...]
    command_buffers: tuple[CommandBuffer, ...]
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def convert(
    executable: Executable,
    *,
    device: DeviceDescription | None = None,
    ffi_traits: Mapping[str, bool] = FFI_TRAITS,
) -> Conversion:
    """Groups the executable's thunks into command buffers as XLA does when it loads the program.

    Args:
      executable: the program; ``debug_options`` must be the resolved ones.
      device: the device that loads it; None: the description stored in the executable.
      ffi_traits: FFI target -> whether its handler is command-buffer compatible; a missing target is not.

    Raises:
      InputError: neither ``device`` nor the executable describes a device (jaxlib 0.11 and older).
    """
    device = device or executable.device
    if device is None:
        raise InputError(
            "the executable does not say for which device it is grouped (jaxlib before 0.12 stores none): "
            "name one with --target"
        )
    config = Configuration.of(executable, device, ffi_traits)
    grouping = _Grouping(config)
    sequence = grouping.convert_list(executable.thunks, (), OpenStreams())
    return Conversion(
        sequence=sequence,
        command_buffers=tuple(grouping.command_buffers),
        left_out=grouping.left_out,
        notes=_notes(executable, config),
    )


def _notes(executable: Executable, config: Configuration) -> tuple[str, ...]:
    device, rules = config.device, config.rules
    versions = (device.runtime_version, device.driver_version, device.compile_time_toolkit_version)
    runtime, driver, toolkit = (".".join(map(str, version)) for version in versions)
    notes = [
        f"device: {device.name} from {device.source} "
        f"(CUDA runtime {runtime}, driver {driver}, toolkit {toolkit})",
        f"grouping rules of jaxlib {rules.series}",
    ]
    targets = {
        thunk.info.target_name
        for top in executable.thunks
        for thunk in top.walk()
        if isinstance(thunk.info, CustomCallInfo)
    }
    for target in sorted(targets):
        known = config.ffi_traits.get(target)
        verdict = {True: "compatible", False: "not compatible", None: "unknown, taken as not compatible"}[
            known
        ]
        notes.append(f"FFI target {target}: command-buffer {verdict} (table of FFI traits)")
    return tuple(notes)


class _Grouping:
    """The pass over one program, collecting what it makes and why not."""

    def __init__(self, config: Configuration) -> None:
        self._config = config
        self.command_buffers: list[CommandBuffer] = []
        self.left_out: dict[int, LeftOut] = {}

    def convert_list(
        self, thunks: Sequence[Thunk], path: tuple[tuple[int, int], ...], streams: OpenStreams
    ) -> tuple[Thunk, ...]:
        """Groups one list; loop bodies and branches of what stays outside are grouped in turn."""
        result: list[Thunk] = []
        pending: list[Thunk] = []
        position = 0
        while position < len(thunks):
            thunk = thunks[position]
            length, found = self._judge(thunks, position, streams)
            if found is None:
                pending += thunks[position : position + length]
            else:
                result += self._flush(pending, path)
                pending = []
                result.append(self._leave(thunk, found, path, streams))
            position += length
        return (*result, *self._flush(pending, path))

    def _judge(
        self, thunks: Sequence[Thunk], position: int, streams: OpenStreams
    ) -> tuple[int, Refusal | None]:
        """(how many thunks are decided together, why they stay outside)."""
        thunk = thunks[position]
        if thunk.kind == "kAsyncDone":
            return 1, Refusal(LeftOutReason.ASYNC_DONE, "the start of its async operation is outside")
        stretch: Sequence[Thunk] = (thunk,)
        if thunk.kind == "kAsyncStart":
            length = find_region(thunks, position)
            stretch = thunks[position : position + length]
            found = refusal_of_region(stretch, self._config)
        else:
            found = refusal(thunk, self._config)
        if found is None and self._config.rules.untaken_start_blocks_its_stream:
            blocking = streams.blocking(stretch)
            if blocking is not None:
                found = Refusal(LeftOutReason.ASYNC_STREAM_OPEN, f"the stream of {label(blocking)} is in use")
        return (1, found) if found is not None else (len(stretch), None)

    def _leave(
        self, thunk: Thunk, found: Refusal, path: tuple[tuple[int, int], ...], streams: OpenStreams
    ) -> Thunk:
        """Notes a thunk that stays outside; groups the lists inside it that XLA enters."""
        self.left_out[thunk.id] = LeftOut(thunk, found.reason, found.detail)
        if isinstance(thunk.info, AsyncInfo):
            (streams.start if thunk.kind == "kAsyncStart" else streams.done)(thunk.info)
        nested = []
        for number, inner in enumerate(thunk.nested):
            if _is_entered(thunk, number):
                nested.append(self.convert_list(inner, (*path, (thunk.id, number)), OpenStreams(streams)))
            else:
                self._leave_whole(inner, thunk)
                nested.append(inner)
        return replace(thunk, nested=tuple(nested)) if nested else thunk

    def _leave_whole(self, thunks: Sequence[Thunk], parent: Thunk) -> None:
        place = "the condition of" if parent.kind == "kWhile" else "inside"
        for thunk in (inner for one in thunks for inner in one.walk()):
            detail = f"it is {place} {label(parent)}, which stays outside"
            self.left_out[thunk.id] = LeftOut(thunk, LeftOutReason.PARENT_LEFT_OUT, detail)

    def _flush(self, group: list[Thunk], path: tuple[tuple[int, int], ...]) -> list[Thunk]:
        """The group as one command buffer, or as it is if it is too small."""
        if not group:
            return []
        size = _size(group) if self._config.rules.size_counts_nested else len(group)
        if size < self._config.min_size:
            for thunk in (inner for one in group for inner in one.walk()):
                detail = f"{size} < {self._config.min_size} (xla_gpu_graph_min_graph_size)"
                self.left_out[thunk.id] = LeftOut(thunk, LeftOutReason.TOO_FEW, detail)
            return group
        commands = tuple(group)
        used = frozenset(index for thunk in commands for index in thunk.allocations)
        buffer = CommandBuffer(commands, path, used)
        self.command_buffers.append(buffer)
        return [Thunk(COMMAND_BUFFER, -1, buffer.name, nested=(commands,))]


def _is_entered(thunk: Thunk, number: int) -> bool:
    """Whether nested list ``number`` is grouped on its own: bodies and branches are, conditions never."""
    return thunk.kind == "kConditional" or (thunk.kind == "kWhile" and number == 1)


def _size(group: Sequence[Thunk]) -> int:
    """What is compared with the minimum: the larger of the thunk counts without and with nested ones."""
    return max(len(group), sum(map(_weight, group)))


def _weight(thunk: Thunk) -> int:
    """Thunks in the tree, wrappers not counted and dynamic slice fusions not entered."""
    own = 0 if thunk.kind in _WRAPPERS else 1
    if thunk.kind in PRIVATE_ALLOCATION_KINDS:
        return own
    return own + sum(_weight(inner) for thunks in thunk.nested for inner in thunks)


def command_buffer_allocations(conversion: Conversion) -> frozenset[int]:
    """Indices of every allocation that some command buffer uses, nested command buffers included."""
    return frozenset(index for buffer in conversion.command_buffers for index in buffer.allocations)
