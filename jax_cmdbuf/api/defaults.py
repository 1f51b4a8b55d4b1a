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
    "UPDATE_MODE",
    "default_observe",
    "default_update_mode",
    "update_mode_named",
]

# Names of environment variables.
FLAG_POLICY = "JAX_CMDBUF_FLAGS"
UPDATE_MODE = "JAX_CMDBUF_MODE"
OBSERVE = "JAX_CMDBUF_OBSERVE"

_MODES = ("ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED")
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
