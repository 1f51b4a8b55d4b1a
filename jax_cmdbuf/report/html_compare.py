"""Two plans as one HTML page: the differences, and both plans' own pages inside.

Invariant: like ``html_plan``, nothing is loaded from elsewhere; the inner pages stand in ``srcdoc``
  attributes.
"""

from __future__ import annotations

import html
from importlib import resources

from jax_cmdbuf.report.compare import Comparison
from jax_cmdbuf.report.html_plan import plan_as_html

__all__ = ["comparison_as_html"]


def comparison_as_html(comparison: Comparison) -> str:
    """The page."""
    rows = "\n".join(
        f"<tr><th scope='row'>{html.escape(each.what)}</th><td>{html.escape(each.left)}</td>"
        f"<td>{html.escape(each.right)}</td></tr>"
        for each in comparison.differences
    )
    body = rows or "<tr><td colspan='3'>The two plans are the same.</td></tr>"
    labels = [html.escape(label) or "no flags" for label in comparison.labels]
    frames = "\n".join(
        f"<section><h2>{side}: <code>{label}</code></h2>"
        f'<iframe title="plan {side}" srcdoc="{html.escape(plan_as_html(plan))}"></iframe></section>'
        for side, label, plan in zip("AB", labels, (comparison.left, comparison.right), strict=True)
    )
    style = resources.files("jax_cmdbuf.report").joinpath("assets", "plan.css").read_text(encoding="utf-8")
    module = html.escape(comparison.left.executable.module)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{module}: two sets of flags</title>
<style>{style}
tbody th {{ position: static; background: none; font-weight: 500; white-space: normal; }}
iframe {{ width: 100%; height: 900px; border: 1px solid var(--line); border-radius: 10px; }}
</style></head>
<body><header><div><h1>{module}: two sets of flags</h1></div></header>
<main><section><h2>Differences</h2><div class="scroll"><table>
<thead><tr><th></th><th>A: {labels[0]}</th><th>B: {labels[1]}</th></tr></thead>
<tbody>{body}</tbody></table></div></section>
{frames}
</main></body></html>
"""
