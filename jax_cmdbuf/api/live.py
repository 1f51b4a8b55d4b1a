"""A function of the running process -> something to plan: its GPU's executable, or module text for CUDA.

Invariant: arguments are read for shape, type and sharding only; the function is traced, never run.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile import ModuleSource
from jax_cmdbuf.executable.compile_module import argument_paths, result_paths
from jax_cmdbuf.executable.compile_sharding import is_array, struct
from jax_cmdbuf.executable.executable import CompiledProgram, Executable

__all__ = ["CompiledHere", "live_program"]


@dataclass(frozen=True)
class CompiledHere:
    """What the process's own JAX compiled.

    Attributes:
      executable: the program.
      arguments, results: paths of its parameters and results; empty where unknown.
      gpu: model of the GPU it is for, or None where unknown.
    """

    executable: Executable
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    gpu: str | None = None


# Without the kernel driver no CUDA device can be there, so asking JAX, which starts its backends, is not
# needed.
_DRIVER = Path("/proc/driver/nvidia")


def live_program(
    program: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, native: bool
) -> ModuleSource | CompiledHere:
    """Lowers a live function.

    Args:
      program: a function, or a stage of one (``Lowered``, ``Compiled``).
      args, kwargs: what it is called with.
      native: compile with the process's own backend if that is a GPU.

    Returns:
      Text to compile in the worker, or what was compiled here.

    Raises:
      InputError: not a function, or arguments for a stage that already has them.
    """
    if isinstance(program, jax.stages.Compiled | jax.stages.Lowered) and (args or kwargs):
        raise InputError(f"a {type(program).__name__} has its arguments already; give it alone")
    if isinstance(program, jax.stages.Compiled):
        return CompiledHere(Executable.from_compiled(cast(CompiledProgram, program)))
    if isinstance(program, jax.stages.Lowered):
        return _as_text(program)
    if inspect.ismethod(program) and hasattr(program, "trace"):
        # Asked for its attributes, a bound method answers for the function without its object.
        return live_program(program.__func__, (program.__self__, *args), kwargs, native=native)
    if not callable(program):
        raise InputError(f"cannot plan a {type(program).__name__}: give a jitted function and its arguments")
    jitted = program if hasattr(program, "trace") else jax.jit(program)
    if native and _has_gpu():
        lowered = jitted.lower(*args, **kwargs)
        module = lowered.compiler_ir()
        return CompiledHere(
            Executable.from_compiled(cast(CompiledProgram, lowered.compile())),
            argument_paths(module),
            result_paths(module),
            gpu=jax.devices()[0].device_kind,
        )
    shapes, keywords = jax.tree.map(_shape_of, (args, kwargs))
    return _as_text(jitted.trace(*shapes, **keywords).lower(lowering_platforms=("cuda",)))


def _has_gpu() -> bool:
    return _DRIVER.exists() and jax.default_backend() == "gpu"


def _as_text(lowered: jax.stages.Lowered) -> ModuleSource:
    # Locations carry the argument paths.
    return ModuleSource(lowered.as_text(debug_info=True), "the traced function")


def _shape_of(leaf: Any) -> Any:
    """The leaf's shape and type; where it lies now does not matter, how it is split over devices does."""
    if not is_array(leaf):
        return leaf
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, jax.sharding.NamedSharding) or sharding.mesh.size == 1:
        sharding = None
    return struct(leaf, sharding)
