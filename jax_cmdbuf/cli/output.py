"""Where a verb's output goes: stdout, or a file that appears whole or not at all; progress goes to stderr.

Invariant: a file given by ``--output`` is never left half written.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from jax_cmdbuf.errors import InputError

__all__ = ["print_rich", "progress", "write_output"]

_FILE_WIDTH = 140
# Piped output has no width of its own; tables need more than the 80 columns that rich assumes.
_PIPE_WIDTH = 140


def write_output(text: str, output: str | None) -> None:
    """Writes to the file ``output`` in one step, or to stdout.

    A symbolic link stays and what it leads to is written; pipes, devices and whatever stands in /dev are
    written to, never replaced.

    Raises:
      InputError: the file cannot be written.
    """
    if output is None:
        sys.stdout.write(text)
        return
    path = Path(output).resolve()
    try:
        is_device = Path(output).absolute().is_relative_to("/dev")  # /dev/stdout may lead to a file
        if is_device or (path.exists() and not path.is_file()):
            with Path(output).open("a", encoding="utf-8") as stream:
                stream.write(text)
            return
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror or error}") from error


def print_rich(show: Callable[[Console], None], output: str | None) -> None:
    """Lets ``show`` print on a console of the terminal, of a pipe, or of the file ``output``."""
    if output is not None:
        console = Console(file=io.StringIO(), width=_FILE_WIDTH, highlight=False)
        show(console)
        assert isinstance(console.file, io.StringIO)
        write_output(console.file.getvalue(), output)
        return
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(highlight=False, width=_PIPE_WIDTH)
    show(console)


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Shows that something is going on, on stderr, if that is a terminal; yields a way to say what."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(text) as status:
        yield lambda detail: status.update(f"{text}: {detail}")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
