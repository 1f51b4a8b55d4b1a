"""Asks an installed jaxlib itself what it does with XLA_FLAGS, in processes that may end.

For building catalogs and for checking this package against what it simulates; no ordinary call comes here.
jaxlib is imported once, in a process of its own, and every question is a fork of that. Invariant: this
process never imports jaxlib, and none of its environment but what a question says decides the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from xla_flags.errors import UnknownJaxlibError

_SERVER = r"""
import ctypes, json, os, sys
import jaxlib._jax as jax

def child(question, errors, answer):
    os.dup2(errors, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(question["cwd"])
    if question["value"] is not None:
        os.environb[b"XLA_FLAGS"] = bytes.fromhex(question["value"])
    os.write(answer, jax.CompileOptions().SerializeAsString())
    ctypes.CDLL(None).exit(0)  # C's exit, which logs what is logged at the end

def content(file):
    return os.pread(file, os.fstat(file).st_size, 0).hex()

os.environ.pop("XLA_FLAGS", None)
for line in sys.stdin:
    errors, answer = os.memfd_create("errors"), os.memfd_create("answer")
    pid = os.fork()
    if not pid:
        child(json.loads(line), errors, answer)
    _, status = os.waitpid(pid, 0)
    status = os.waitstatus_to_exitcode(status)
    reply = {"status": status, "errors": content(errors), "answer": content(answer)}
    os.close(errors), os.close(answer)
    print(json.dumps(reply), flush=True)
"""

# Of xla/tsl's log: severity, month and day, time, thread, file and line.
_HEADER = re.compile(rb"^([EFW])\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [\w./-]+:\d+\] ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What jaxlib did.

    Attributes:
      status: the process's exit status.
      options: the serialized CompileOptionsProto; None if the process ended first.
      log: (severity, text) of what it logged; the text of one entry may have many lines.
    """

    status: int
    options: bytes | None
    log: tuple[tuple[str, str], ...]

    @property
    def fatal(self) -> str | None:
        """The text the process ended with."""
        return next((text for severity, text in self.log if severity == "F"), None)


@dataclass(slots=True)
class Probe:
    """A running process that has imported jaxlib and answers questions. Made by `probe`."""

    _requests: int
    _replies: IO[bytes]

    def ask(self, value: bytes | None, cwd: str | os.PathLike[str] = ".") -> Answer:
        """What jaxlib does with a value of XLA_FLAGS (without NUL); None: not set."""
        question = {"value": None if value is None else value.hex(), "cwd": str(Path(cwd).resolve())}
        # Unbuffered: what could not be written to a process that is gone must not be tried again on closing.
        request = json.dumps(question).encode() + b"\n"
        line = b""
        with contextlib.suppress(BrokenPipeError):
            while request:
                request = request[os.write(self._requests, request) :]
            line = self._replies.readline()
        if not line:
            raise UnknownJaxlibError("the process that imported jaxlib is gone")
        reply: dict[str, Any] = json.loads(line)
        answer = bytes.fromhex(reply["answer"])
        return Answer(reply["status"], answer or None, _log(bytes.fromhex(reply["errors"])))


def _log(errors: bytes) -> tuple[tuple[str, str], ...]:
    starts = list(_HEADER.finditer(errors))
    ends = [*(each.start() for each in starts), len(errors)][1:]
    return tuple(
        (
            str(match[1], "ascii"),
            errors[match.end() : end].removesuffix(b"\n").decode("utf-8", "surrogateescape"),
        )
        for match, end in zip(starts, ends, strict=True)
    )


@contextlib.contextmanager
def probe(python: str = sys.executable) -> Iterator[Probe]:
    """Starts a Python that imports jaxlib, for as long as the context lasts.

    Args:
      python: the interpreter whose jaxlib is asked.

    Raises:
      UnknownJaxlibError: it has no jaxlib.
    """
    dropped = ("XLA_FLAGS", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_VMODULE")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    process = subprocess.Popen(
        [python, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            yield Probe(process.stdin.fileno(), process.stdout)
        finally:
            process.kill()
