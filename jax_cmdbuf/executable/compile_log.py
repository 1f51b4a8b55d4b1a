"""What XLA printed or raised -> one sentence a person can act on.

Invariant: pure text in, text out; a message that no row knows passes through, shortened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jax_cmdbuf.errors import CmdbufError, CompileError, InputError, MissingDependencyError

__all__ = ["explain", "key_line", "one_line", "remarks"]

_MAX_LENGTH = 400
# "F1201 05:47:12.345678    1234 parse_flags_from_env.cc:234] text"
_LOG_PREFIX = re.compile(r"^(?P<level>[IWEF])\d{4} [\d:.]+\s+\d+ [\w./-]+:\d+\] (?P<text>.*)$")
_NOISE = re.compile(r"^\s*(@\s+0x|\*\*\*|#\d+|File \"|Traceback |\^|~)")


@dataclass(frozen=True, slots=True)
class _Row:
    pattern: re.Pattern[str]
    error: type[CmdbufError]
    sentence: str


_AOT = "pip install 'jax-cmdbuf[aot]'"
_ROWS = tuple(
    _Row(re.compile(pattern), error, sentence)
    for pattern, error, sentence in (
        (
            r"No PTX compilation provider is available",
            MissingDependencyError,
            f"XLA found no ptxas: {_AOT} (package nvidia-cuda-nvcc)",
        ),
        (
            r"libdevice not found",
            MissingDependencyError,
            f"XLA found no libdevice.10.bc: {_AOT} (package nvidia-nvvm)",
        ),
        (
            r"No FFI handler registered for (\w+) on a platform CUDA",
            MissingDependencyError,
            r"the program calls \1, which JAX's CUDA kernels provide: pip install jax-cuda13-plugin, "
            "of jaxlib's version",
        ),
        (
            r"topology not implemented for cuda",
            MissingDependencyError,
            f"JAX did not register its CUDA compiler plugin: {_AOT} (package jax-cuda13-pjrt)",
        ),
        (
            r"[Uu]nknown backend:? '?gpu'?",
            CompileError,
            "the program calls back into Python (debug.print, pure_callback or io_callback), which cannot be "
            "compiled for a GPU that is not there; remove the callback",
        ),
        (
            r"cuDNN is not detected|cuDNN not found",
            CompileError,
            "the program asks for cuDNN attention, which needs a GPU to compile; use implementation='xla'",
        ),
        (
            r"No supported GPU devices found",
            CompileError,
            "the program has a Pallas kernel, which needs a GPU or an abstract mesh of one to lower",
        ),
        (
            r"Failed to parse GpuTargetConfigProto",
            InputError,
            "XLA cannot read the target's text; see the fields of the shipped targets",
        ),
    )
)


def explain(message: str) -> CmdbufError:
    """The typed error for a message that XLA or JAX raised while lowering or compiling."""
    for row in _ROWS:
        match = row.pattern.search(message)
        if match:
            return row.error(match.expand(row.sentence))
    return CompileError(f"XLA refused the program: {one_line(message)}")


# What XLA logs when it compiles a program otherwise than a GPU would have it -> what that means.
_REMARKS = (
    (
        "Missing deviceless CUB scratch size data",
        "large sorts were compiled with XLA's fallback (many kernels), because CUB's needs are unknown "
        "without a GPU: a real one runs CUB, a custom call",
    ),
    (
        "cannot enumerate configs in deviceless mode",
        "a library's algorithms were not chosen, because that needs a GPU",
    ),
)


def remarks(log: str) -> tuple[str, ...]:
    """What the output of a compilation that succeeded tells the reader of its plan, one sentence each."""
    return tuple(sentence for mark, sentence in _REMARKS if mark in log)


def one_line(message: str) -> str:
    """The message in one line of bounded length: its paragraphs joined, blanks squeezed."""
    text = " ".join(message.split())
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


def key_line(log: str) -> str:
    """The line of a dead process's output that says why: a fatal one, else an error, else its last."""
    by_level: dict[str, str] = {}
    last = ""
    for line in log.splitlines():
        if not line.strip() or _NOISE.match(line):
            continue
        match = _LOG_PREFIX.match(line)
        if match:
            by_level.setdefault(match["level"], match["text"])
        last = line
    return one_line(by_level.get("F") or by_level.get("E") or last)
