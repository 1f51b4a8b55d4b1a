"""A line at the bottom of the terminal that says what a running script's functions do.

Invariant: where stderr is no terminal, nothing is written and nothing of the process is touched.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

__all__ = ["run_progress"]


@contextmanager
def run_progress(name: str, tell: Callable[[], str], console: Console | None = None) -> Iterator[None]:
    """Shows progress while it lasts.

    Args:
      name: of the script.
      tell: says what is going on; called from another thread, a few times a second.
      console: where; None: stderr.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    began = time.monotonic()

    def line() -> Text:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        text = Text.assemble(("jax-cmdbuf ", "dim"), f"{name} {minutes}:{seconds:02d}  ", (tell(), "dim"))
        text.truncate(console.width, overflow="ellipsis")
        return text

    # What the script prints to the same terminal goes above the line; what it prints elsewhere stays its own.
    live = Live(
        get_renderable=line,
        console=console,
        transient=True,
        refresh_per_second=4,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )
    with live:
        yield
