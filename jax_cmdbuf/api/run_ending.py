"""How a script ended, as a value that needs no JAX: the script may never have imported it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from jax_cmdbuf.report.run_model import ProcessInfo, RunReport

__all__ = ["Ending", "report_without_jax"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a script ran and ended.

    Attributes:
      command: the script and its arguments.
      outcome, detail, status: see ``ProcessInfo``.
      began_us, took_us: see ``ProcessInfo``.
    """

    command: tuple[str, ...]
    outcome: str
    detail: str
    status: int
    began_us: float
    took_us: float


def report_without_jax(ending: Ending) -> RunReport:
    """The report of a script that did not import JAX."""
    process = ProcessInfo(
        0,
        1,
        socket.gethostname(),
        os.getpid(),
        "",
        (),
        {},
        ending.command,
        ending.outcome,
        ending.detail,
        ending.status,
        ending.began_us,
        ending.took_us,
    )
    return RunReport((process,))
