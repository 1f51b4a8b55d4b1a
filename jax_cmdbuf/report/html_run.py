"""A run's report as one HTML page that needs nothing else: no network, no other file.

Invariant: what the page says is what ``run_json`` says; no text of the program can end the element it stands
in.
"""

from __future__ import annotations

from jax_cmdbuf.report.html_plan import fill_page
from jax_cmdbuf.report.run_json import run_as_dict
from jax_cmdbuf.report.run_model import RunReport

__all__ = ["run_as_html"]


def run_as_html(report: RunReport) -> str:
    """The page."""
    commands = dict.fromkeys(" ".join(each.command) for each in report.processes)
    return fill_page("run", "; ".join(commands), run_as_dict(report))
