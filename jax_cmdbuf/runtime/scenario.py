"""Recorded executions of a real XLA: the loop's inputs, and the events that a replay must give again.

Invariant: what a replay may read is kept apart from what it must predict: addresses (the allocator's and the
driver's choice), donation, and errors that come from outside the machinery are inputs; events are not.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["ExecutionInputs", "Outcome", "Scenario", "ThreadInputs", "load_scenario"]

# The text PJRT puts before the reason when it refuses an argument, before the program is called.
_REFUSED = "Invalid buffer passed to Execute()"


class Outcome(Enum):
    """What is known from outside about an execution.

    RETURNED: nothing went wrong outside the machinery. FAILED: the call raised; where the program calls user
    code, that may be why. REFUSED: PJRT refused an argument, so the program was not called.
    """

    RETURNED = "returned"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ExecutionInputs:
    """What a replay may know of one execution.

    Attributes:
      parameters: address of each flattened argument.
      allocated: addresses that the allocator handed out while it ran, in order.
      reservation: address of the range the driver reserved, or None.
      outcome: what went wrong outside.
      error: the text of the exception, or "".
      freed: addresses freed while it ran or before the next one, in order.
    """

    parameters: tuple[int, ...] = ()
    allocated: tuple[DeviceAddress, ...] = ()
    reservation: int | None = None
    outcome: Outcome = Outcome.RETURNED
    error: str = ""
    freed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadInputs:
    """The same for threads that called one program at once; which call allocated what is not recorded."""

    allocated: tuple[DeviceAddress, ...]
    reservation: int | None
    freed: tuple[int, ...]


@dataclass(frozen=True)
class Scenario:
    """A recorded loop.

    Attributes:
      name, module, device, jaxlib: what ran, where, under which release; "" where it is not recorded.
      mode: the update mode.
      has_donation: whether some argument was donated; None: not recorded.
      executions: one entry per call.
      threads: the calls of several threads, instead of ``executions``.
      recorded: the events of each execution as recorded, for comparison only.
    """

    name: str
    module: str
    mode: CommandBufferUpdateMode
    executions: tuple[ExecutionInputs, ...]
    threads: ThreadInputs | None = None
    has_donation: bool | None = None
    device: str = ""
    jaxlib: str = ""
    recorded: tuple[tuple[Mapping[str, Any], ...], ...] = ()


def load_scenario(path: str | PathLike[str]) -> Scenario:
    """Reads a recorded scenario, a JSON file that may be compressed with gzip.

    Raises:
      InputError: the file cannot be read, is not JSON or is no recording; the sentence says which.
    """
    try:
        data = Path(path).read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        value = json.loads(text)
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read scenario {path}: {error}") from error
    except ValueError as error:
        raise InputError(f"scenario {path} is not JSON: {error}") from error
    try:
        return _scenario(value)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"scenario {path} is not a recording of executions: {detail}") from error


def _scenario(value: Mapping[str, Any]) -> Scenario:
    executions = value["executions"]
    thread_events = value.get("thread_events")
    donated = value.get("donated")
    return Scenario(
        name=value["scenario"],
        module=value["module"],
        mode=CommandBufferUpdateMode(value["update_mode"]),
        executions=tuple(_execution(each) for each in executions),
        threads=None if thread_events is None else _threads(thread_events),
        has_donation=None if donated is None else bool(donated),
        device=value.get("device") or "",
        jaxlib=value.get("jaxlib") or "",
        recorded=tuple(tuple(each["events"]) for each in executions)
        if thread_events is None
        else (tuple(thread_events),),
    )


def _execution(value: Mapping[str, Any]) -> ExecutionInputs:
    events = value["events"]
    error = value.get("error") or ""
    outcome = Outcome.RETURNED
    if error:
        outcome = Outcome.REFUSED if _REFUSED in error else Outcome.FAILED
    return ExecutionInputs(
        tuple(value["input_addresses"]),
        _allocated(events),
        _reservation(events),
        outcome,
        error,
        _freed([*events, *value.get("events_after", ())]),
    )


def _threads(events: Sequence[Mapping[str, Any]]) -> ThreadInputs:
    return ThreadInputs(_allocated(events), _reservation(events), _freed(events))


def _allocated(events: Sequence[Mapping[str, Any]]) -> tuple[DeviceAddress, ...]:
    return tuple(
        DeviceAddress(event["address"], event["size"]) for event in events if event["kind"] == "allocate"
    )


def _reservation(events: Sequence[Mapping[str, Any]]) -> int | None:
    return next((event["address"] for event in events if event["kind"] == "reserve"), None)


def _freed(events: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    return tuple(event["address"] for event in events if event["kind"] == "deallocate")
