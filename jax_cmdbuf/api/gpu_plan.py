"""What XLA would run on a GPU for one signature of a function: found once, by whatever means there are.

Invariant: the caller's process compiles nothing for it and its JAX stays on its own platform; a plan that
cannot be had is an error of ``errors.py`` that says what is missing.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.live import live_program
from jax_cmdbuf.errors import CmdbufError, CompileError, InputError
from jax_cmdbuf.executable.compile import CompileRequest, ModuleSource, compile_for_target
from jax_cmdbuf.executable.conversion import Conversion, convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, Target, load_target

__all__ = ["CompiledPrograms", "GivenPlan", "GpuPlan", "make_plan"]

_LOGGER = logging.getLogger("jax_cmdbuf")

# An executable, its bytes, or the file that has them (gzipped or not).
GivenPlan = Executable | bytes | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """An executable for the target and what it takes.

    Attributes:
      executable: the program.
      conversion: its command buffers.
      kept: positions of the flattened dynamic arguments that the program takes, ascending: JAX leaves out
        those that nothing depends on.
      effects: whether the program calls user code.
    """

    executable: Executable
    conversion: Conversion
    kept: tuple[int, ...]
    effects: bool


class CompiledPrograms:
    """What was compiled for targets, so that nobody waits twice for one program; failures are kept, too.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._found: dict[bytes, Executable | CmdbufError] = {}

    def executable(self, name: str, lowered: jax.stages.Lowered, target: Target) -> Executable:
        """The executable of a program.

        Args:
          name: what to call it in the log.
          lowered: the program, lowered for CUDA.
          target: the GPU.

        Raises:
          CmdbufError: compiling it failed, now or before; see ``executable.compile``.
        """
        # Without the places in the source, which say who called, not what is run.
        parts = (lowered.as_text(), target.text, os.environ.get("XLA_FLAGS", ""))
        key = hashlib.sha256("\0".join(parts).encode()).digest()
        if key not in self._found:
            try:
                self._found[key] = _compiled(name, lowered, target)
            except CmdbufError as error:
                self._found[key] = error.with_traceback(None)
        found = self._found[key]
        if isinstance(found, CmdbufError):
            raise found.with_traceback(None)
        return found

    def clear(self) -> None:
        """Forgets everything."""
        self._found.clear()


def make_plan(
    traced: jax.stages.Traced,
    target: str | None,
    given: GivenPlan | None = None,
    compiled: CompiledPrograms | None = None,
) -> GpuPlan:
    """The plan of a traced function.

    Args:
      traced: the function with its argument types.
      target: name or file of the GPU; None: ``h200``.
      given: an executable to take instead of compiling one.
      compiled: what was compiled before, and gets what is compiled now; None: nothing.

    Raises:
      InputError: the given executable cannot be read, or does not take these arguments.
      CmdbufError: compiling for the target failed; see ``executable.compile``.
    """
    gpu = load_target(target or DEFAULT_TARGET)
    lowered = _lower(traced, None if given is not None else ("cuda",))
    compiled = compiled or CompiledPrograms()
    executable = _given(given) if given is not None else compiled.executable(traced.fun_name, lowered, gpu)
    kept = _jax.kept_arguments(lowered)
    takes = sum(each.is_entry_computation_parameter for each in executable.allocations)
    if takes != len(kept):
        raise InputError(
            f"the executable of {executable.module} takes {takes} arrays, but {traced.fun_name} passes "
            f"{len(kept)}"
        )
    conversion = convert(executable, device=executable.device or gpu.device)
    return GpuPlan(executable, conversion, kept, bool(traced.jaxpr.effects))


def _lower(traced: jax.stages.Traced, platforms: tuple[str, ...] | None) -> jax.stages.Lowered:
    """Lowers for platforms that need not be there; None: for those that are."""
    with warnings.catch_warnings():
        # The user's own call says the same once more.
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        try:
            lowered: jax.stages.Lowered = (
                traced.lower(lowering_platforms=platforms) if platforms else traced.lower()
            )
            return lowered
        except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
            # What calls back into Python, for one, cannot be lowered for a platform that is not there.
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CompileError(f"JAX cannot lower {traced.fun_name} for a GPU: {reason}") from error


def _given(given: GivenPlan) -> Executable:
    if isinstance(given, Executable):
        return given
    if isinstance(given, bytes):
        return Executable.from_bytes(given, source="the given bytes")
    try:
        data = Path(given).read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read the plan {os.fspath(given)}: {error}") from error
    return Executable.from_bytes(data, source=os.fspath(given))


def _compiled(name: str, lowered: jax.stages.Lowered, target: Target) -> Executable:
    source = live_program(lowered, (), {}, native=False)
    assert isinstance(source, ModuleSource)
    _LOGGER.info("compiling %s for %s", name, target.name)
    began = time.perf_counter()
    result = compile_for_target(CompileRequest(source, target))
    took = time.perf_counter() - began
    _LOGGER.info("compiled %s for %s in %.1f s", name, target.name, took)
    return Executable.from_bytes(result.serialized, source=f"the executable of {source.name}")
