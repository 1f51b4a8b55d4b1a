"""A plan as one HTML page that needs nothing else: no network, no other file.

The page is a template with the plan's JSON in it; a script in the page draws tables and the picture.
Invariant: what the page says is what ``json_plan`` says; no text of the program can end the element it
stands in.
"""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any

from jax_cmdbuf.report.json_plan import plan_as_dict
from jax_cmdbuf.report.model import Plan

__all__ = ["fill_page", "plan_as_html"]


def plan_as_html(plan: Plan) -> str:
    """The page."""
    data = {**plan_as_dict(plan), "commands": _commands(plan)}
    return fill_page("plan", f"{plan.executable.module} · {plan.context.target_text}", data)


def fill_page(name: str, title: str, data: object) -> str:
    """A page from the assets ``name.html``, ``name.js``, and ``plan.css`` followed by ``name.css``.

    Args:
      name: of the page.
      title: its title, as text.
      data: what its script reads, as JSON.
    """
    assets = resources.files("jax_cmdbuf.report").joinpath("assets")
    page = assets.joinpath(f"{name}.html").read_text(encoding="utf-8")
    styles = dict.fromkeys(("plan.css", f"{name}.css"))
    replacements = {
        "{{title}}": html.escape(title),
        "{{style}}": "\n".join(assets.joinpath(each).read_text(encoding="utf-8") for each in styles),
        "{{data}}": _inside_script(data),
        "{{script}}": assets.joinpath(f"{name}.js").read_text(encoding="utf-8"),
    }
    for mark, text in replacements.items():
        # Each mark stands once, and what is put in is never searched again for the marks before it.
        before, _, after = page.partition(mark)
        page = before + text + after
    return page


def _inside_script(data: object) -> str:
    """JSON in which no character can end the script element or begin another."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _commands(plan: Plan) -> list[dict[str, Any]]:
    """Every command with what it reads and writes, in program order."""
    entries = []
    for number, commands in enumerate(plan.commands):
        for command in commands:
            writes = {use.slice.allocation for use in command.thunk.uses if use.is_write}
            reads = {use.slice.allocation for use in command.thunk.uses if not use.is_write}
            entries.append(
                {
                    "buffer": number,
                    "id": command.thunk.id,
                    "kind": command.thunk.kind,
                    "name": command.thunk.name,
                    "reads": sorted(reads & command.allocations),
                    "writes": sorted(writes & command.allocations),
                    "always": command.requires_update_on_execute,
                }
            )
    return entries
