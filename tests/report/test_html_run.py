"""The page of a run: its data, and that it needs nothing else."""

from __future__ import annotations

import json
import re

from jax_cmdbuf.report.html_run import run_as_html
from jax_cmdbuf.report.run_json import run_as_dict
from tests.report.runs import function, report
from tests.report.test_html_plan import Page


def test_the_page_holds_the_report_as_data():
    made = report(function("two_gemm_drop"), function("shared_param_late"))
    assert json.loads(Page(run_as_html(made)).scripts[0]) == json.loads(json.dumps(run_as_dict(made)))


def test_the_page_needs_nothing_else():
    text = run_as_html(report())
    for tag, attributes in Page(text).tags:
        assert not {"src", "href", "action"} & set(attributes), (tag, attributes)
    assert not re.findall(r"https?://", text)
    assert "@import" not in text
    assert "url(" not in text
    assert "{{" not in text


def test_no_text_of_the_program_ends_an_element():
    evil = "</script><script>alert(1)</script>"
    page = Page(run_as_html(report(command=(evil,), notes=(evil,))))
    assert len(page.scripts) == 2
    assert json.loads(page.scripts[0])["processes"][0]["command"] == [evil]
