"""Every recorded scenario under every update mode, replayed: the same events in the same order.

The inputs of a replay are addresses, donation, control flow and errors from outside; all events are
predicted. Those of the machinery are compared with every field, and so are the allocator's, as far as the
memory is the program's own.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from jax_cmdbuf.api.session import simulated_device
from jax_cmdbuf.events import EVENT_KINDS
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.runtime.replay import replay
from jax_cmdbuf.runtime.scenario import load_scenario

DATA = Path(__file__).parents[1] / "data" / "va_remap"
TRACES = sorted(DATA.glob("*/*.json.gz"))
MEMORY = ("allocate", "deallocate")


@cache
def program(folder):
    executable = Executable.from_bytes(gzip.decompress((folder / "executable.bin.gz").read_bytes()))
    return executable, convert(executable, device=load_target("h200").device)


def own_memory(events, reserved):
    """The events without frees of what the caller holds: those come when the caller likes."""
    seen = set()
    for event in events:
        if event["kind"] == "allocate":
            seen.add(event["address"])
        address = event.get("address", 0)
        if event["kind"] != "deallocate" or address in seen or any(address in each for each in reserved):
            yield event


@pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_recorded_events(path):
    trace = json.loads(gzip.decompress(path.read_bytes()))
    device = simulated_device()
    replayed = replay(load_scenario(path), *program(path.parent), device)
    found = [execution["events"] for execution in replayed.to_json()["executions"]]
    if "thread_events" in trace:
        # Which thread allocates when is up to the system; what the machinery does is not.
        (predicted,) = found
        wanted = [event for event in trace["thread_events"] if event["kind"] not in MEMORY]
        assert [event for event in predicted if event["kind"] not in MEMORY] == wanted
    else:
        assert len(found) == len(trace["executions"])
        reserved = []
        for recorded, predicted in zip(trace["executions"], found, strict=True):
            reserved += [
                range(event["address"], event["address"] + event["total_size"])
                for event in recorded["events"]
                if event["kind"] == "reserve"
            ]
            errors = [event for event in predicted if event["kind"] == "error"]
            assert [event for event in predicted if event["kind"] != "error"] == list(
                own_memory(recorded["events"], reserved)
            )
            assert bool(errors) == bool(recorded["error"])
            for error in errors:
                assert predicted[-1] == error
                assert f"{error['code']}: {error['message']}" in recorded["error"]
    assert device.executor.fault is None
    assert device.executor.memory.is_empty


def test_the_recordings_have_what_they_are_known_for():
    assert len({path.parent for path in TRACES}) == 36
    assert len(TRACES) == 108
    kinds = {
        event["kind"]
        for path in TRACES
        for execution in json.loads(gzip.decompress(path.read_bytes()))["executions"]
        for event in execution["events"]
    }
    assert kinds <= EVENT_KINDS.keys()
    assert EVENT_KINDS.keys() - kinds == {"transition_disabled", "error", "demote"}
