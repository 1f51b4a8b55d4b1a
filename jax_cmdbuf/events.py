"""What happened while programs ran: one frozen dataclass per kind of event, and the sink that takes them.

The kinds and fields are those of the log lines XLA writes (``gpu_executable_va_remap_allocator.cc``,
``device_address_vmm_allocator.cc``, ``command_buffer_thunk.cc``, ``command_executor.cc``), so a recorded
trace, the simulated device and a GPU tell one story. Invariant: ``to_json`` gives the kind first, then
exactly the recorded fields in order. Kinds that XLA does not have (``error``, ``demote``) say so in their
docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

__all__ = [
    "EVENT_KINDS",
    "NO_SINK",
    "Allocate",
    "Deallocate",
    "Demote",
    "Error",
    "Event",
    "EventLog",
    "EventSink",
    "ExecuteCommandBuffer",
    "ExecuteRemapped",
    "NotVmmBacked",
    "ProfileStep",
    "RecordCreate",
    "Reserve",
    "SharedBuffer",
    "ThunkFallback",
    "TransitionActive",
    "TransitionDisabled",
    "UpdateBegin",
    "UpdateDone",
    "event_from_json",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events; ``kind`` is the recorded name of the kind."""

    kind: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        """The event as a JSON object: ``kind``, then its fields in declaration order."""
        return {"kind": self.kind} | {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Allocate(Event):
    """The VMM allocator handed out ``size`` bytes at ``address``; not told of buffers in a reservation."""

    kind: ClassVar[str] = "allocate"
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Deallocate(Event):
    """The VMM allocator took ``address`` back; a buffer placed in a reservation has its rounded size."""

    kind: ClassVar[str] = "deallocate"
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class ThunkFallback(Event):
    """A command buffer ran as its plain thunks."""

    kind: ClassVar[str] = "thunk_fallback"
    reason: str


@dataclass(frozen=True, slots=True)
class ProfileStep(Event):
    """A successful execution was observed; ``step`` of ``limit``."""

    kind: ClassVar[str] = "profile_step"
    module: str
    step: int
    limit: int


@dataclass(frozen=True, slots=True)
class NotVmmBacked(Event):
    """A stable parameter is not an exact address of the VMM allocator, so it was dropped."""

    kind: ClassVar[str] = "not_vmm_backed"
    module: str
    allocation: int
    address: int


@dataclass(frozen=True, slots=True)
class SharedBuffer(Event):
    """A stable parameter shares its buffer with another one, so it was dropped."""

    kind: ClassVar[str] = "shared_buffer"
    module: str
    allocation: int


@dataclass(frozen=True, slots=True)
class TransitionActive(Event):
    """Profiling ended and remapping begins: ``automatic`` temps, ``selected`` of ``candidates``."""

    kind: ClassVar[str] = "transition_active"
    module: str
    automatic: int
    selected: int
    candidates: int
    steps: int


@dataclass(frozen=True, slots=True)
class TransitionDisabled(Event):
    """Profiling ended and nothing can be remapped."""

    kind: ClassVar[str] = "transition_disabled"
    module: str


@dataclass(frozen=True, slots=True)
class Reserve(Event):
    """A virtual address range for all remapped allocations was reserved; sizes in bytes."""

    kind: ClassVar[str] = "reserve"
    module: str
    address: int
    total_size: int
    granularity: int


@dataclass(frozen=True, slots=True)
class ExecuteRemapped(Event):
    """An execution with ``remapped`` allocations in the reservation begins; their mapping may still fail."""

    kind: ClassVar[str] = "execute_remapped"
    module: str
    remapped: int


@dataclass(frozen=True, slots=True)
class RecordCreate(Event):
    """A command list is recorded for the first time; nested lists follow their parent."""

    kind: ClassVar[str] = "record_create"
    commands: int


@dataclass(frozen=True, slots=True)
class UpdateBegin(Event):
    """A command buffer is about to be updated because ``updated_allocs`` dynamic addresses changed."""

    kind: ClassVar[str] = "update_begin"
    executions_since_update: int
    commands: int
    updated_allocs: int
    first_record: bool


@dataclass(frozen=True, slots=True)
class UpdateDone(Event):
    """A command list was updated, ``skipped`` of its commands left alone; nested lists come first."""

    kind: ClassVar[str] = "update_done"
    commands: int
    skipped: int


@dataclass(frozen=True, slots=True)
class ExecuteCommandBuffer(Event):
    """A command buffer was submitted, for the ``num_executions``-th time since it was last recorded."""

    kind: ClassVar[str] = "execute_command_buffer"
    num_executions: int


@dataclass(frozen=True, slots=True)
class Error(Event):
    """The execution failed with this status. Not a log line of XLA: the exception that its caller sees."""

    kind: ClassVar[str] = "error"
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Demote(Event):
    """The guard took an allocation out of the remapped set. XLA has no such thing."""

    kind: ClassVar[str] = "demote"
    module: str
    allocation: int
    reason: str


EVENT_KINDS: Mapping[str, type[Event]] = {
    event.kind: event
    for event in (
        Allocate,
        Deallocate,
        ThunkFallback,
        ProfileStep,
        NotVmmBacked,
        SharedBuffer,
        TransitionActive,
        TransitionDisabled,
        Reserve,
        ExecuteRemapped,
        RecordCreate,
        UpdateBegin,
        UpdateDone,
        ExecuteCommandBuffer,
        Error,
        Demote,
    )
}


def event_from_json(value: Mapping[str, Any]) -> Event:
    """The event that ``to_json`` wrote as ``value``.

    Raises:
      ValueError: the kind is unknown, or fields are missing or too many.
    """
    arguments = dict(value)
    kind = arguments.pop("kind", None)
    if kind not in EVENT_KINDS:
        raise ValueError(f"unknown event kind {kind!r}")
    try:
        return EVENT_KINDS[kind](**arguments)
    except TypeError as error:
        raise ValueError(f"event {kind}: {error}") from None


class EventSink(Protocol):
    """Whatever takes events; it must not call back into the machinery."""

    def emit(self, event: Event, /) -> None:
        """Takes one event."""


class EventLog:
    """A sink that keeps the events in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        # Bound once: the hot path emits several events per execution.
        self.emit = self.events.append

    def drain(self) -> tuple[Event, ...]:
        """The events since the last call, and forgets them."""
        events = tuple(self.events)
        self.events.clear()
        return events


class _NoSink:
    """A sink that drops everything."""

    def emit(self, event: Event, /) -> None:
        """Drops the event."""


NO_SINK: EventSink = _NoSink()
