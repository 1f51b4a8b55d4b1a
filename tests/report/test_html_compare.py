from __future__ import annotations

import html

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.compare import Comparison
from jax_cmdbuf.report.html_compare import comparison_as_html
from jax_cmdbuf.report.html_plan import plan_as_html
from jax_cmdbuf.report.model import Plan
from tests.report.programs import plan_of
from tests.report.test_compare import other_plan


def test_differences_and_both_pages_are_inside(plan: Plan, executable: Executable) -> None:
    other = other_plan(executable)
    text = comparison_as_html(Comparison(plan, other, ("", '--flag="<b>"')))
    assert "<td>1</td><td>0</td>" in text
    assert "<code>--flag=&quot;&lt;b&gt;&quot;</code>" in text
    for each in (plan, other):
        assert html.escape(plan_as_html(each)) in text


def test_equal_plans_say_so(plan: Plan, executable: Executable) -> None:
    assert "The two plans are the same." in comparison_as_html(
        Comparison(plan, plan_of(executable), ("", ""))
    )
