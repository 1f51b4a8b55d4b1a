"""The same flags with several jaxlibs: one row a flag, one column a jaxlib.

Invariant: the last row is the verdict, and a column says `ok` there only if that jaxlib goes on.
"""

from __future__ import annotations

from rich.text import Text

from xla_flags.cli.effects import MAX_ROWS, cell
from xla_flags.cli.output import console, table
from xla_flags.parser import ParseResult

_STYLES = {"ok": "green", "goes on": "bold green", "unknown": "red", "refused": "red", "ends": "bold red"}


def print_matrix(results: list[ParseResult]) -> None:
    """Prints the matrix. All results are of the same value."""
    headings = ["flag", *(result.catalog.version for result in results)]
    rows: list[list[str | Text]] = []
    tokens = results[0].tokens
    for token in tokens[:MAX_ROWS]:
        text = token.text if len(token.text) <= 70 else token.text[:69] + "…"
        rows.append([text, *(_styled(cell(result, token)) for result in results)])
    if len(tokens) > MAX_ROWS:
        rows.append([f"(and {len(tokens) - MAX_ROWS} more)", *("…" for _ in results)])
    if results[0].ignored is not None:
        rows.append(["(and a rest)", *(Text("never read", style="yellow") for _ in results)])
    rows.append(["", *(_styled("goes on" if result.ok else "ends") for result in results)])
    console().print()
    console().print(table(headings, rows))


def _styled(word: str) -> Text:
    return Text(word, style=_STYLES.get(word, ""))
