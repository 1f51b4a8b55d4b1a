"""XLA's own text dumps of a thunk sequence, as far as the grouping into command buffers needs them.

Mirrors ``ThunkSequence::ToString`` (``xla/backends/gpu/runtime/thunk.cc``). Invariant: command buffers come
in program order, nested ones included; each is the ids of its direct children.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jax_cmdbuf.executable.conversion import Conversion

__all__ = ["command_buffers_in_dump", "grouping_differences"]

_LINE = re.compile(r"^(?P<indent> *)(?P<id>\d+): (?P<kind>k\w+)", re.MULTILINE)
_COMMAND_BUFFER = "kCommandBuffer"


def command_buffers_in_dump(text: str) -> tuple[tuple[int, ...], ...]:
    """The thunk ids of every command buffer in ``*.thunk_sequence_after_thunk_passes.txt``."""
    lines = [(len(match["indent"]), int(match["id"]), match["kind"]) for match in _LINE.finditer(text)]
    return tuple(
        tuple(_children(lines, position))
        for position, (_, _, kind) in enumerate(lines)
        if kind == _COMMAND_BUFFER
    )


def _children(lines: list[tuple[int, int, str]], parent: int) -> Iterator[int]:
    outer = lines[parent][0]
    depth: int | None = None
    for indent, number, _ in lines[parent + 1 :]:
        if indent <= outer:
            return
        depth = indent if depth is None else depth
        if indent == depth:
            yield number


def grouping_differences(conversion: Conversion, dump: str | None) -> tuple[str, ...]:
    """How the predicted grouping differs from XLA's dump; empty: they agree.

    Args:
      conversion: the prediction.
      dump: text after the thunk passes; None: XLA wrote none, because no pass changed anything.

    Returns:
      One sentence for each command buffer that only one of the two has.
    """
    predicted = [tuple(thunk.id for thunk in buffer.commands) for buffer in conversion.command_buffers]
    dumped = list(command_buffers_in_dump(dump)) if dump else []
    return (
        *(
            f"predicted, but not in XLA's dump: thunks {_spelled(ids)}"
            for ids in predicted
            if ids not in dumped
        ),
        *(
            f"in XLA's dump, but not predicted: thunks {_spelled(ids)}"
            for ids in dumped
            if ids not in predicted
        ),
    )


def _spelled(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:8]))
    return shown if len(ids) <= 8 else f"{shown}, … ({len(ids)} in all)"
