"""What ``jax-cmdbuf run`` does in the process of the script that it runs.

JAX must not be imported before the script does it, because scripts set variables that JAX reads then, so
this module is imported just after. Invariant: when the session has ended, ``jax.jit`` and the process's
runtimes are what they were.
"""

from __future__ import annotations

import contextlib

from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.every_jit import every_jit
from jax_cmdbuf.api.run_collect import collect_run
from jax_cmdbuf.api.run_ending import Ending
from jax_cmdbuf.api.run_recorder import RunRecorder
from jax_cmdbuf.report.run_model import RunReport

__all__ = ["RunSession"]


class RunSession:
    """Records from its making to ``end``."""

    def __init__(self, observe_all: bool) -> None:
        """Begins.

        Args:
          observe_all: whether to observe every function that is jitted, too.
        """
        self._recorder = RunRecorder()
        self._stack = contextlib.ExitStack()
        self._stack.callback(self._recorder.stop)
        if observe_all:
            self._stack.enter_context(every_jit(command_buffer))

    def progress(self) -> str:
        """What is going on, in one line."""
        return self._recorder.progress()

    def end(self, ending: Ending) -> RunReport:
        """Stops recording; the report."""
        self._stack.close()
        report = collect_run(self._recorder, ending)
        self._recorder.close()
        return report
