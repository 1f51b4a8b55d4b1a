"""Reports of several processes of one run, as one.

Invariant: nothing is averaged or dropped; the merged report has every process and function of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.report.run_model import ProcessInfo, RunReport

__all__ = ["merge_runs"]


def merge_runs(reports: Sequence[RunReport], sources: Sequence[str]) -> RunReport:
    """The report of all processes.

    Args:
      reports: of different processes of one run; each may itself be merged.
      sources: what to call them in errors.

    Raises:
      InputError: two are of the same process, or they are of runs with different numbers of processes.
    """
    seen: dict[int, str] = {}
    first: ProcessInfo | None = None
    for report, source in zip(reports, sources, strict=True):
        for process in report.processes:
            if process.index in seen:
                raise InputError(
                    f"{seen[process.index]} and {source} are both of process {process.index} of "
                    f"{process.count}: merge the reports of one run only"
                )
            if first is not None and process.count != first.count:
                raise InputError(
                    f"{source} is of a run of {process.count} processes, {sources[0]} of one of "
                    f"{first.count}: "
                    "merge the reports of one run only"
                )
            seen[process.index] = source
            first = first or process
    if first is None:
        raise InputError("give at least one report")
    processes = sorted((each for report in reports for each in report.processes), key=lambda each: each.index)
    functions = sorted(
        (each for report in reports for each in report.functions), key=lambda each: each.process
    )
    return RunReport(tuple(processes), tuple(functions))
