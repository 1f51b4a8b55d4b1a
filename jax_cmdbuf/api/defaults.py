"""What decorated functions do when not told: read from the environment, where child processes see it.

Invariant: an environment variable that says nothing valid is an error that names it, never a silent default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jax_cmdbuf.errors import InputError

if TYPE_CHECKING:
    from xla_flags.options import CommandBufferUpdateMode

__all__ = [
    "FLAG_POLICY",
    "OBSERVE",
    "RUNTIME",
    "TARGET",
    "UPDATE_MODE",
    "check_target",
    "default_observe",
    "default_runtime",
    "default_target",
    "default_update_mode",
    "runtime_named",
    "update_mode_named",
]

# Names of environment variables.
FLAG_POLICY = "JAX_CMDBUF_FLAGS"
UPDATE_MODE = "JAX_CMDBUF_MODE"
OBSERVE = "JAX_CMDBUF_OBSERVE"
RUNTIME = "JAX_CMDBUF_RUNTIME"
TARGET = "JAX_CMDBUF_TARGET"

_MODES = ("ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED")
_RUNTIMES = ("auto", "xla", "simulated", "cuda_graph")
_FLAG = "--xla_gpu_command_buffer_update_mode="


def update_mode_named(name: str, where: str) -> CommandBufferUpdateMode:
    """The update mode of that name, exactly as ``XLA_FLAGS`` has it.

    Args:
      name: the name.
      where: whose value it is, for the error.

    Raises:
      InputError: there is no such mode, or not any more.
    """
    from xla_flags.options import CommandBufferUpdateMode

    if name in _MODES:
        return CommandBufferUpdateMode(name)
    raise InputError(f"{where} is {name!r}; an update mode is one of {', '.join(_MODES)}")


def default_update_mode(environ: Mapping[str, str] | None = None) -> CommandBufferUpdateMode:
    """``JAX_CMDBUF_MODE``, else what ``XLA_FLAGS`` says, else ALWAYS_UPDATE.

    The modes of jaxlib 0.10 that are gone since mean ALWAYS_UPDATE here.

    Raises:
      InputError: ``JAX_CMDBUF_MODE`` names no update mode.
    """
    environ = os.environ if environ is None else environ
    if asked := environ.get(UPDATE_MODE, ""):
        return update_mode_named(asked, UPDATE_MODE)
    from xla_flags.options import CommandBufferUpdateMode
    from xla_flags.tokens import read_source, tokenize

    found = "ALWAYS_UPDATE"
    for token in tokenize(read_source(environ.get("XLA_FLAGS") or None, None, None).text).tokens:
        if token.text == "--":
            break
        # Not parsed: this jaxlib need not know the mode, since we implement it.
        if token.text.startswith(_FLAG) and token.value in _MODES:
            found = token.value
    return CommandBufferUpdateMode(found)


def default_observe(environ: Mapping[str, str] | None = None) -> bool:
    """Whether decorated functions are looked at: ``JAX_CMDBUF_OBSERVE``, on or off; on if it is not set.

    Raises:
      InputError: it says anything else.
    """
    environ = os.environ if environ is None else environ
    asked = environ.get(OBSERVE, "")
    if asked in ("", "on"):
        return True
    if asked == "off":
        return False
    raise InputError(f"{OBSERVE} is {asked!r}; it is on or off")


def runtime_named(name: str, where: str) -> str:
    """``name``, if it is a runtime's.

    Args:
      name: the name.
      where: whose value it is, for the error.

    Raises:
      InputError: there is no such runtime.
    """
    if name in _RUNTIMES:
        return name
    raise InputError(f"{where} is {name!r}; it is one of {', '.join(_RUNTIMES)}")


def default_runtime(environ: Mapping[str, str] | None = None) -> str:
    """``JAX_CMDBUF_RUNTIME``, else "auto".

    Raises:
      InputError: it names no runtime.
    """
    environ = os.environ if environ is None else environ
    return runtime_named(environ.get(RUNTIME) or "auto", RUNTIME)


def default_target(environ: Mapping[str, str] | None = None) -> str | None:
    """The GPU to simulate: ``JAX_CMDBUF_TARGET``; None where it is not set."""
    environ = os.environ if environ is None else environ
    return environ.get(TARGET) or None


def check_target(name: str) -> None:
    """Reads the description of a GPU.

    Args:
      name: its name, or the file of its description.

    Raises:
      TargetError: there is no such GPU, or its description is of no use.
    """
    from jax_cmdbuf.executable.targets import load_target

    load_target(name)
