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

__all__ = [
    "ExecutionInputs",
    "Outcome",
    "Scenario",
    "ThreadInputs",
    "load_scenario",
    "match_in_order",
    "order_of_calls",
]

# The text PJRT puts before the reason when it refuses an argument, before the program is called.
_REFUSED = "Invalid buffer passed to Execute()"
# One event of these kinds for each command buffer that ran.
_RUNS = ("execute_command_buffer", "thunk_fallback")


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
      command_buffer_runs: how many command buffers ran; tells how often data-dependent loops did.
    """

    parameters: tuple[int, ...] = ()
    allocated: tuple[DeviceAddress, ...] = ()
    reservation: int | None = None
    outcome: Outcome = Outcome.RETURNED
    error: str = ""
    freed: tuple[int, ...] = ()
    command_buffer_runs: int = 0


@dataclass(frozen=True, slots=True)
class ThreadInputs:
    """The same for threads that called one program at once; which call allocated what is not recorded.

    Attributes:
      memory: what the allocator handed out (True) and took back (False), in order.
      reservation: address of the range the driver reserved, or None.
    """

    memory: tuple[tuple[bool, DeviceAddress], ...]
    reservation: int | None


@dataclass(frozen=True)
class Scenario:
    """A recorded loop.

    Attributes:
      name, module, device, jaxlib: what ran, where, under which release; "" where it is not recorded.
      mode: the update mode.
      has_donation: whether some argument was donated; None: not recorded.
      argument_shapes: XLA shape text of each flattened argument, such as ``f32[128,128]``; empty: not
        recorded.
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
    argument_shapes: tuple[str, ...] = ()
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
        detail = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read scenario {path}: {detail}") from error
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
        argument_shapes=tuple(_shape(*each) for each in value.get("inputs") or ()),
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
        # A program that was called has asked the allocator for memory or told something by then.
        is_called = any(event["kind"] != "deallocate" for event in events)
        outcome = Outcome.FAILED if is_called and _REFUSED not in error else Outcome.REFUSED
    return ExecutionInputs(
        tuple(value["input_addresses"]),
        _allocated(events),
        _reservation(events),
        outcome,
        error,
        _freed([*events, *value.get("events_after", ())]),
        sum(event["kind"] in _RUNS for event in events),
    )


def _threads(events: Sequence[Mapping[str, Any]]) -> ThreadInputs:
    memory = tuple(
        (event["kind"] == "allocate", DeviceAddress(event["address"], event["size"]))
        for event in events
        if event["kind"] in ("allocate", "deallocate")
    )
    return ThreadInputs(memory, _reservation(events))


def _allocated(events: Sequence[Mapping[str, Any]]) -> tuple[DeviceAddress, ...]:
    return tuple(
        DeviceAddress(event["address"], event["size"]) for event in events if event["kind"] == "allocate"
    )


def _reservation(events: Sequence[Mapping[str, Any]]) -> int | None:
    return next((event["address"] for event in events if event["kind"] == "reserve"), None)


def _freed(events: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    return tuple(event["address"] for event in events if event["kind"] == "deallocate")


# NumPy's name of an element type -> XLA's, where XLA's is not the first letter and the number of bits.
_ELEMENT_TYPES = {"bool": "pred", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128"}


def _shape(dimensions: Sequence[int], element_type: str) -> str:
    """XLA's text of a shape."""
    name = _ELEMENT_TYPES.get(element_type)
    if name is None:
        letter = {"i": "s"}.get(element_type[:1], element_type[:1])
        bits = element_type.lstrip("abcdefghijklmnopqrstuvwxyz").replace("_", "")
        name = letter + bits
    return f"{name}[{','.join(str(dimension) for dimension in dimensions)}]"


def order_of_calls(
    memory: Sequence[tuple[bool, DeviceAddress]], sizes: Sequence[int]
) -> tuple[DeviceAddress, ...]:
    """What calls of several threads were handed out, call by call, in the order in which the calls ended.

    Args:
      memory: allocations (True) and frees (False) of all threads, in order.
      sizes: bytes that a call allocates, in order. With remapping a call leaves some out; but then one call
        does not begin before the other has ended, so the order is the recorded one.
    """
    calls: list[list[int]] = []
    for number, (is_allocation, address) in enumerate(memory):
        if is_allocation:
            waiting = (each for each in calls if len(each) < len(sizes) and sizes[len(each)] == address.size)
            call = next(waiting, None)
            if call is None:
                calls.append(call := [])
            call.append(number)
    if any(len(call) < len(sizes) for call in calls):
        return tuple(address for is_allocation, address in memory if is_allocation)

    def end(call: list[int]) -> int:
        """Where the call's first buffer, a temporary, is freed."""
        mine = {memory[number][1] for number in call}
        frees = (i for i in range(call[-1], len(memory)) if not memory[i][0] and memory[i][1] in mine)
        return next(frees, len(memory))

    return tuple(memory[number][1] for call in sorted(calls, key=end) for number in call)


def match_in_order(have: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...] | None:
    """Ascending positions in ``have`` of the elements of ``wanted``, as early as possible, or None."""
    positions: list[int] = []
    start = 0
    for element in wanted:
        try:
            start = have.index(element, start) + 1
        except ValueError:
            return None
        positions.append(start - 1)
    return tuple(positions)
