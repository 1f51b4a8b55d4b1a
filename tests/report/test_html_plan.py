from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.html_plan import plan_as_html
from jax_cmdbuf.report.json_plan import plan_as_dict
from jax_cmdbuf.report.model import Plan
from tests.report.programs import CONTEXT, plan_of


class Page(HTMLParser):
    """The page's elements, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.scripts and self.tags[-1][0] == "script":
            self.scripts[-1] += data


def test_the_page_holds_the_plan_as_data(plan: Plan) -> None:
    page = Page(plan_as_html(plan))
    data = json.loads(page.scripts[0])
    commands = data.pop("commands")
    assert data == json.loads(json.dumps(plan_as_dict(plan)))
    assert [(each["id"], each["reads"], each["writes"]) for each in commands] == [
        (1, [0, 1], [5]),
        (2, [4, 5], [2]),
        (3, [2], [5]),
        (4, [5], [2]),
        (5, [0, 2], [0]),
    ]


def test_the_page_needs_nothing_else(plan: Plan) -> None:
    text = plan_as_html(plan)
    for tag, attributes in Page(text).tags:
        assert not {"src", "href", "action"} & set(attributes), (tag, attributes)
    urls = set(re.findall(r"https?://[^\"' ]+", text))
    assert urls == {"http://www.w3.org/2000/svg"}  # the name of SVG, not a place that is loaded
    assert "@import" not in text
    assert "url(" not in text
    assert "{{" not in text


def test_no_text_of_the_program_ends_an_element(executable: Executable) -> None:
    nasty = "</script><script>alert(1)</script><!-- & ' \" {{script}}"
    context = dataclasses.replace(CONTEXT, target=nasty, arguments=(nasty, nasty), notes=(nasty,))
    plan = plan_of(dataclasses.replace(executable, module=nasty), context)
    page = Page(plan_as_html(plan))
    assert len(page.scripts) == 2
    assert json.loads(page.scripts[0])["allocations"][1]["path"] == nasty
