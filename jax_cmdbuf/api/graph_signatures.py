"""What is known of the signatures of functions that run as CUDA graphs, or that XLA runs instead, and why.

Invariant: a program is in the process's table from before its custom call is made until no call of it can
come any more.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field
from typing import Any

from jax_cmdbuf.api.graph_program import GraphProgram
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot

__all__ = ["PROGRAMS", "GraphReport", "GraphSignature", "GraphSignatures"]

_LOGGER = logging.getLogger("jax_cmdbuf")
# Number -> program; one table for the process, because XLA's table of custom calls is one for the process.
PROGRAMS: dict[int, GraphProgram] = {}
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class GraphReport:
    """What became of one signature of a function.

    Attributes:
      function: its name.
      module: name of the program; "" where XLA's own was never made.
      mode: the update mode.
      native_reason: why XLA runs it; "" when we do.
      remapping_reason: why none of its addresses is remapped; "" when nothing stands in the way.
      runs: executions that were enqueued by us.
      events: kind of event -> how many.
      profiles: its remapping on each device.
    """

    function: str
    module: str
    mode: str
    native_reason: str = ""
    remapping_reason: str = ""
    runs: int = 0
    events: dict[str, int] = field(default_factory=dict)
    profiles: tuple[RemappingSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """One signature of a function.

    Attributes:
      name: of the function.
      mode: the update mode.
      program: what we run; None: XLA runs it.
      number: the program's in ``PROGRAMS``.
      reason: why XLA runs it.
      module: name of XLA's program, where there was one.
    """

    name: str
    mode: str
    program: GraphProgram | None
    number: int
    reason: str = ""
    module: str = ""

    def report(self) -> GraphReport:
        """What became of it."""
        program = self.program
        if program is None:
            return GraphReport(self.name, self.module, self.mode, self.reason)
        return GraphReport(
            self.name,
            program.executable.module,
            self.mode,
            remapping_reason=program.remapping_reason,
            runs=program.runs,
            events=dict(program.events.counts),
            profiles=program.snapshots(),
        )

    def release(self) -> None:
        """Gives back what it has on the devices."""
        if self.program is not None:
            self.program.release()

    def forget(self) -> None:
        """The same for ever: no call will come any more."""
        PROGRAMS.pop(self.number, None)
        self.release()


class GraphSignatures:
    """What is known of one function's signatures.

    Attributes:
      jitted: the function.
      names: of its positional parameters, as far as they are known.
      name: its own, for messages.
      made: one entry for each signature that we run, and for each reason why XLA runs some.
    """

    def __init__(self, jitted: Any, names: tuple[str, ...], name: str) -> None:
        self.jitted = jitted
        self.names = names
        self.name = name
        self.made: list[GraphSignature] = []
        self._said: set[str] = set()

    def add(self, program: GraphProgram) -> int:
        """A signature that we run; returns its number."""
        number = next(_NUMBERS)
        PROGRAMS[number] = program
        self.made.append(GraphSignature(self.name, str(program.options.mode), program, number))
        return number

    def leave_to_xla(self, reason: str, module: str = "") -> None:
        """A signature that XLA runs; told once."""
        if reason not in self._said:
            self._said.add(reason)
            self.made.append(GraphSignature(self.name, "", None, -1, reason, module))
            _LOGGER.warning("%s runs on XLA's own command buffers: %s", self.name, reason)
