"""Events: the recorded kinds and fields, there and back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jax_cmdbuf.events import EVENT_KINDS, NO_SINK, EventLog, ExecuteCommandBuffer, event_from_json

TRACES = sorted((Path(__file__).parent / "data" / "va_remap").glob("*/*.json.gz"))


def recorded_events():
    for path in TRACES:
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for execution in trace["executions"]:
            yield from execution["events"]
            yield from execution["events_after"]
        yield from trace.get("thread_events", ())


def test_every_recorded_event_comes_back_with_the_same_fields_in_the_same_order():
    count = 0
    for recorded in recorded_events():
        event = event_from_json(recorded)
        assert list(event.to_json().items()) == list(recorded.items())
        count += 1
    assert count > 5000


def test_the_kinds_are_the_names_of_the_classes():
    for kind, event in EVENT_KINDS.items():
        assert "".join(part.title() for part in kind.split("_")) == event.__name__


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"kind": "no_such_kind"},
        {"kind": "allocate", "address": 1},
        {"kind": "allocate", "address": 1, "size": 2, "x": 3},
    ],
)
def test_anything_else_is_refused(value):
    with pytest.raises(ValueError, match="event"):
        event_from_json(value)


def test_a_log_keeps_the_order_and_drains_once():
    log = EventLog()
    events = [ExecuteCommandBuffer(1), ExecuteCommandBuffer(2)]
    for event in events:
        log.emit(event)
        NO_SINK.emit(event)
    assert list(log.drain()) == events
    assert log.drain() == ()


def test_events_cannot_be_changed():
    with pytest.raises(AttributeError):
        ExecuteCommandBuffer(1).num_executions = 2  # type: ignore[misc]
