"""Which update mode XLA itself runs a decorated function with: what was asked, what it comes to, and why.

XLA keeps one mode for the process (``XLA_FLAGS``) and one per executable (a compiler option), but chooses its
allocator by the process's alone, and remaps nothing without the VMM allocator. Invariant: what is said here
follows from the environment in which JAX started and from the flags that the installed XLA has; nothing is
tried on the device.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jax_cmdbuf import _jax
from jax_cmdbuf.api.carriers import installed_carriers
from jax_cmdbuf.api.defaults import default_update_mode
from jax_cmdbuf.api.flag_guard import UPDATE_MODE_FLAG
from xla_flags.errors import XlaFlagsError
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["NativeClient", "UpdateModeStatus", "native_client", "update_mode_status"]

_ALWAYS = CommandBufferUpdateMode.ALWAYS_UPDATE


@dataclass(frozen=True, slots=True)
class UpdateModeStatus:
    """What becomes of a function's update mode.

    Attributes:
      requested: the mode that was asked for.
      effective: the mode whose behaviour the function has.
      reason: why they differ; "" when they do not.
      remedy: what to do about it; "" when there is nothing.
      runtime: "xla" or "simulated".
    """

    requested: str
    effective: str
    reason: str = ""
    remedy: str = ""
    runtime: str = "xla"

    @property
    def is_effective(self) -> bool:
        """Whether the function has the mode that was asked for."""
        return self.requested == self.effective

    def __str__(self) -> str:
        text = f"update mode {self.requested} requested, {self.effective} effective"
        if self.reason:
            text += f": {self.reason}"
        return text + (f" ({self.remedy})" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class NativeClient:
    """What decides about update modes in a process.

    Attributes:
      platform: JAX's default backend.
      xla: whose flags count, for messages: "jax-cuda13-pjrt 0.12.0".
      modes: the update modes which that XLA has; None: its flags could not be read.
      process_mode: the mode in ``XLA_FLAGS``.
      allocator: ``XLA_PYTHON_CLIENT_ALLOCATOR``, or "vmm" where the process's mode forces it.
    """

    platform: str
    xla: str
    modes: frozenset[str] | None
    process_mode: CommandBufferUpdateMode
    allocator: str

    @property
    def is_vmm(self) -> bool:
        """Whether buffers come from the VMM allocator, without which XLA remaps nothing."""
        return self.allocator == "vmm"


def native_client(platform: str, environ: Mapping[str, str] | None = None) -> NativeClient:
    """The client of this process.

    Args:
      platform: JAX's default backend.
      environ: the environment in which it started; None: this process's.
    """
    environ = os.environ if environ is None else environ
    process = default_update_mode({"XLA_FLAGS": environ.get("XLA_FLAGS", "")})
    allocator = environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() or "default"
    if process != _ALWAYS:
        allocator = "vmm"
    title, modes = _modes(environ.get("JAX_PLATFORMS", ""))
    return NativeClient(platform, title, modes, process, allocator)


@functools.cache
def _modes(platforms: str) -> tuple[str, frozenset[str] | None]:
    carriers = installed_carriers()
    used = [each for each in carriers if each.platforms and each.is_used({"JAX_PLATFORMS": platforms})]
    carrier = (used or list(carriers))[0]
    try:
        flag = carrier.catalog().flags.get(UPDATE_MODE_FLAG)
    except XlaFlagsError:
        return carrier.title, None
    return carrier.title, frozenset(flag.enum.numbers if flag is not None and flag.enum is not None else ())


def update_mode_status(
    jitted: Any, requested: CommandBufferUpdateMode, client: NativeClient
) -> tuple[UpdateModeStatus, dict[str, str]]:
    """What becomes of ``requested`` for a jitted function, and the compiler options that it takes.

    Args:
      jitted: the function.
      requested: the mode.
      client: the process's.
    """
    process = client.process_mode

    def differs(effective: str, reason: str, remedy: str) -> tuple[UpdateModeStatus, dict[str, str]]:
        return UpdateModeStatus(str(requested), effective, reason, remedy), {}

    if client.platform != "gpu":
        reason = f"JAX runs on the platform {client.platform!r}, which has no command buffers"
        return differs("none", reason, "install a CUDA plugin, or use runtime='simulated'")
    options = _jax.compiler_options_of(jitted)
    if (own := options.get(UPDATE_MODE_FLAG)) is not None and str(own) != requested:
        return differs(str(own), "the function was jitted with that compiler option", "leave the option out")
    if client.modes is not None and requested not in client.modes:
        has = ", ".join(sorted(client.modes)) or "no update modes"
        reason = f"{client.xla} has {has}"
        return differs(str(process), reason, "jaxlib 0.11 and later have SKIP_TEMP and SKIP_PROFILED")
    if requested == process:
        return UpdateModeStatus(str(requested), str(requested)), {}
    if requested != _ALWAYS and not client.is_vmm:
        remedy = (
            f"before JAX starts, set XLA_FLAGS=--{UPDATE_MODE_FLAG}={requested}, or "
            "XLA_PYTHON_CLIENT_ALLOCATOR=vmm to choose the mode per function"
        )
        reason = f"the client's allocator is {client.allocator!r}, and remapping needs the VMM allocator"
        return differs(str(_ALWAYS), reason, remedy)
    if _jax.cache_size_of(jitted) is None:
        reason = f"jax.jit did not make {getattr(jitted, '__name__', jitted)}"
        remedy = f"set XLA_FLAGS=--{UPDATE_MODE_FLAG}={requested} before JAX starts"
        return differs(str(process), reason, remedy)
    return UpdateModeStatus(str(requested), str(requested)), {UPDATE_MODE_FLAG: str(requested)}
