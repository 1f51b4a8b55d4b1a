"""A run's executions in Chrome's trace-event format, which Perfetto and chrome://tracing open.

One process of the trace is one device, one thread one signature of a function; a slice is one call on the
host,
named by what the command buffers did. Invariant: slices of a track are in order of time, and timestamps of
several processes have one origin, so that merged reports line up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from jax_cmdbuf.report.run_model import ExecutionRun, FunctionRun, RunReport

__all__ = ["run_as_trace"]


def run_as_trace(report: RunReport) -> str:
    """The trace, as JSON: times in microseconds since the first process began."""
    origin = min((each.began_us for each in report.processes), default=0.0)
    events: list[dict[str, Any]] = []
    tracks = {
        key: number for number, key in enumerate(sorted({_device(f) for f in report.functions}), start=1)
    }
    for key, number in tracks.items():
        function = next(each for each in report.functions if _device(each) == key)
        name = f"process {key[0]}, device {key[1]}: {function.target}"
        if function.runtime == "simulated":
            name += " (simulated)"
        events.append(_meta("process_name", number, 0, name=name))
        events.append(_meta("process_sort_index", number, 0, sort_index=number))
    threads = dict.fromkeys(tracks, 0)
    for function in report.functions:
        key = _device(function)
        threads[key] += 1
        events += _track(function, tracks[key], threads[key], origin)
    data = {"displayTimeUnit": "ms", "otherData": _origin(report), "traceEvents": events}
    return json.dumps(data, separators=(",", ":")) + "\n"


def _device(function: FunctionRun) -> tuple[int, int]:
    return function.process, function.device


def _origin(report: RunReport) -> dict[str, str]:
    commands = dict.fromkeys(" ".join(each.command) for each in report.processes)
    return {"command": "; ".join(commands), "made_by": "jax-cmdbuf run"}


def _meta(kind: str, process: int, thread: int, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": arguments}


def _track(function: FunctionRun, process: int, thread: int, origin: float) -> Iterator[dict[str, Any]]:
    yield _meta("thread_name", process, thread, name=f"{function.label}, {function.effective}")
    yield _meta("thread_sort_index", process, thread, sort_index=thread)
    place = {"pid": process, "tid": thread}
    timed = [
        (number, each) for number, each in enumerate(function.executions, function.first) if each.took_us >= 0
    ]
    timed.sort(key=lambda each: each[1].began_us)
    for number, execution in timed:
        begin = round(execution.began_us - origin, 3)
        name, colour = _kind(execution)
        arguments: dict[str, Any] = {"execution": number, "commands updated": execution.updated}
        arguments |= {"commands skipped": execution.skipped, "commands recorded": execution.recorded}
        if execution.error:
            arguments["error"] = execution.error
        yield {
            "ph": "X",
            "name": name,
            "cat": function.function,
            "ts": begin,
            "dur": round(execution.took_us, 3),
            "cname": colour,
            "args": arguments,
            **place,
        }
        if execution.transition:
            mark = f"profile decided: {execution.transition}"
            yield {"ph": "i", "name": mark, "s": "t", "ts": begin, **place}
        if function.commands is not None:
            counter = f"{function.label}: commands"
            values = {"updated": execution.updated, "skipped": execution.skipped}
            yield {"ph": "C", "name": counter, "ts": begin, "pid": process, "args": values}


def _kind(execution: ExecutionRun) -> tuple[str, str]:
    """A slice's name and its colour in chrome://tracing; Perfetto colours by name."""
    if execution.error:
        return "fails", "terrible"
    if execution.fallbacks:
        return "plain thunks", "yellow"
    if execution.recorded:
        return "record", "rail_load"
    if execution.updated:
        return "update", "bad"
    return ("replay", "good") if execution.submitted else ("call", "generic_work")
