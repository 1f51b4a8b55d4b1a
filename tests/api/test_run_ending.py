"""The report of a script that never imported JAX needs no JAX."""

from __future__ import annotations

from jax_cmdbuf.api.run_ending import Ending, report_without_jax
from jax_cmdbuf.report.run_json import read_run, run_as_json

ENDING = Ending(("a.py", "-x"), "exited", "exit status 3", 3, 5.0, 7.0)


def test_the_ending_is_in_the_report() -> None:
    report = report_without_jax(ENDING)
    (process,) = report.processes
    assert (process.index, process.count, process.platform, process.devices) == (0, 1, "", ())
    assert (process.command, process.outcome, process.detail, process.status) == (
        ("a.py", "-x"),
        "exited",
        "exit status 3",
        3,
    )
    assert report.functions == ()
    assert read_run(run_as_json(report), "here") == report


def test_it_needs_no_jax(run_python) -> None:  # type: ignore[no-untyped-def]
    code = """
import sys
from jax_cmdbuf.api.run_ending import Ending, report_without_jax
report_without_jax(Ending((), "finished", "", 0, 0.0, 0.0))
assert "jax" not in sys.modules
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
