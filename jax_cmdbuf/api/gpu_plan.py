"""What XLA would run on a GPU for one signature of a function: found once, by whatever means there are.

Invariant: the caller's process compiles nothing for it and its JAX stays on its own platform; a plan that
cannot be had is an error of ``errors.py`` that says what is missing.
"""

from __future__ import annotations

import gzip
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.live import live_program
from jax_cmdbuf.errors import CompileError, InputError
from jax_cmdbuf.executable.compile import CompileRequest, ModuleSource, compile_for_target
from jax_cmdbuf.executable.conversion import Conversion, convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, Target, load_target

__all__ = ["GivenPlan", "GpuPlan", "make_plan"]

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


def make_plan(traced: jax.stages.Traced, target: str | None, given: GivenPlan | None = None) -> GpuPlan:
    """The plan of a traced function.

    Args:
      traced: the function with its argument types.
      target: name or file of the GPU; None: ``h200``.
      given: an executable to take instead of compiling one.

    Raises:
      InputError: the given executable cannot be read, or does not take these arguments.
      CmdbufError: compiling for the target failed; see ``executable.compile``.
    """
    gpu = load_target(target or DEFAULT_TARGET)
    lowered = _lower(traced, None if given is not None else ("cuda",))
    executable = _given(given) if given is not None else _compiled(lowered, gpu)
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


def _compiled(lowered: jax.stages.Lowered, target: Target) -> Executable:
    source = live_program(lowered, (), {}, native=False)
    assert isinstance(source, ModuleSource)
    result = compile_for_target(CompileRequest(source, target))
    return Executable.from_bytes(result.serialized, source=f"the executable of {source.name}")
