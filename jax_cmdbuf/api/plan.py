"""From whatever the user has to a plan: a live function, one in a file, an executable, a module's text.

Invariant: a plan never starts a JAX backend of another platform, never changes the caller's environment and
  never
runs the program; compiling for a GPU that is not there happens in a worker process.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile import (
    CompileRequest,
    CompileResult,
    FunctionSource,
    ModuleSource,
    compile_for_target,
)
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.ffi_traits import FFI_TRAITS
from jax_cmdbuf.executable.targets import DEFAULT_TARGET, Target, load_target, target_named
from jax_cmdbuf.executable.thunk_dump import grouping_differences
from jax_cmdbuf.report.flags import OWN_OPTIONS, changed_flags, missing_update_modes
from jax_cmdbuf.report.model import Plan, PlanContext, make_plan

__all__ = ["PlanOptions", "plan", "plan_executable", "plan_source"]

_TILES = "tile sizes and library algorithms are XLA's defaults: without a GPU nothing is autotuned"
_TRACED = "the function was traced on a CPU: code that asks jax.default_backend() took its CPU path"
# How HLO text and MLIR text begin, comments and aliases included; no serialized executable does.
_MODULE_START = re.compile(rb'\s*(HloModule\s|module[\s@{]|#\w+ ?=|//|!\w+ ?=|"builtin\.module")')


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """How to compile, where the program is not compiled already.

    Attributes:
      target: name of a shipped GPU, or path of a target config text; None: ``h200``.
      devices: number of GPUs; None: 1, or what a module's text says.
      shard: names of arguments to split over the devices; None: by rule.
      shapes: XLA shapes of a function's positional arguments; empty: its ``<function>_args`` says.
      xla_flags: ``XLA_FLAGS`` of the compilation; None: the environment's.
      timeout_s: seconds until a compilation is given up.
      ffi_compatible: FFI targets to take as command-buffer compatible beside those of the table
        (``executable/ffi_traits.py``): what a handler declares is not in the executable.
    """

    target: str | None = None
    devices: int | None = None
    shard: tuple[str, ...] | None = None
    shapes: tuple[str, ...] = ()
    xla_flags: str | None = None
    timeout_s: float = 600.0
    ffi_compatible: tuple[str, ...] = ()


def plan(
    program: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    target: str | None = None,
    devices: int | None = None,
    xla_flags: str | None = None,
) -> Plan:
    """The plan of a jitted function called with ``args``, or of one that is compiled already.

    Without ``target``, on a machine with a GPU the function is compiled by the process's own JAX for that
    GPU. Otherwise it is traced here for CUDA and compiled in a worker process; arguments are only looked
    at, and no GPU is needed.

    Args:
      program: a ``jax.jit`` function (a plain one is jitted), a ``jax.stages.Lowered`` for CUDA, or a
        ``jax.stages.Compiled`` for a GPU.
      args: positional arguments: arrays or ``jax.ShapeDtypeStruct`` in any pytree.
      kwargs: keyword arguments.
      target, devices, xla_flags: see :class:`PlanOptions`.

    Raises:
      CmdbufError: see ``errors.py``.
    """
    from jax_cmdbuf.api.live import live_program

    options = PlanOptions(target, devices, xla_flags=xla_flags)
    given = live_program(program, args, dict(kwargs or {}), native=target is None)
    if isinstance(given, ModuleSource):
        return _compile_and_plan(given, options, traced=True)
    if target is None and given.gpu is not None and given.executable.device is None:
        target = target_named(given.gpu)
    return plan_executable(given.executable, target=target, arguments=given.arguments, results=given.results)


def plan_source(source: str, options: PlanOptions | None = None, *, must_compile: bool = False) -> Plan:
    """The plan of what ``source`` names.

    Args:
      source: ``file.py:function`` or ``package.module:function``; or the path of a serialized executable
        (gzipped or not), of HLO text or of StableHLO text.
      options: how to compile.
      must_compile: refuse an executable, because its flags cannot be changed any more.

    Raises:
      CmdbufError: see ``errors.py``.
    """
    options = options or PlanOptions()
    if not options.timeout_s > 0:
        raise InputError(f"--timeout must be more than 0 seconds, not {options.timeout_s:g}")
    path = Path(source)
    if not path.is_file():
        module, colon, function = source.rpartition(":")
        if not colon or not module or not function:
            raise InputError(
                f"{source or 'an empty name'} is neither a file nor a function: give file.py:function, a "
                "serialized executable, HLO text or StableHLO text"
            )
        if module.endswith(".py") and not Path(module).is_file():
            raise InputError(f"no such file: {module}")
        return _compile_and_plan(FunctionSource(module, function, options.shapes), options, traced=True)
    if path.suffix == ".py":
        raise InputError(f"which function of {source}? Give {source}:function")
    data = _read(path)
    if options.shapes:
        raise InputError(f"--arg goes with a function; {source} has its own arguments")
    if options.shard is not None:
        raise InputError(f"--shard goes with a function; {source} says itself how it is split")
    if not _MODULE_START.match(data):
        if must_compile:
            raise InputError(
                f"{source} is compiled already: flags can be compared for a function or a module's text"
            )
        executable = Executable.from_bytes(data, source=source)
        made = plan_executable(executable, target=options.target, ffi_compatible=options.ffi_compatible)
        return _with_notes(made, _unused(options))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{source} begins like a module's text but is not UTF-8: {error.reason}") from error
    return _compile_and_plan(ModuleSource(text, source), options)


def plan_executable(
    executable: Executable,
    *,
    target: str | None = None,
    arguments: Sequence[str] = (),
    results: Sequence[str] = (),
    ffi_compatible: Sequence[str] = (),
) -> Plan:
    """The plan of an executable that is compiled already.

    Args:
      executable: the program.
      target: the GPU it is for, where the executable does not say (jaxlib 0.11 and older).
      arguments, results: paths of its parameters and result leaves, where known.
      ffi_compatible: see :class:`PlanOptions`.
    """
    notes: tuple[str, ...] = ()
    device = executable.device
    if device is None:
        loaded = load_target(target or DEFAULT_TARGET)
        device, name = loaded.device, loaded.name
        how = f"target {name}" if target else "the default target"
        notes = (
            f"the executable does not describe its GPU: {device.name} was taken from {how}",
            *loaded.warnings,
        )
    else:
        name = device.name
        if target:
            notes = (f"the executable describes its own GPU ({name}): --target was not used",)
    notes += _mode_notes(executable.jaxlib)
    conversion = convert(executable, device=device, ffi_traits=_ffi_traits(ffi_compatible))
    return make_plan(
        executable,
        conversion,
        PlanContext(
            target=name,
            gpu=device.name,
            arguments=tuple(arguments),
            results=tuple(results),
            xla_flags=changed_flags(executable),
            versions={"jaxlib": executable.jaxlib} if executable.jaxlib else {},
            notes=notes,
        ),
    )


def _compile_and_plan(
    source: FunctionSource | ModuleSource, options: PlanOptions, *, traced: bool = False
) -> Plan:
    target = load_target(options.target or DEFAULT_TARGET)
    result = compile_for_target(
        CompileRequest(
            source, target, options.devices, options.shard, options.xla_flags, timeout_s=options.timeout_s
        )
    )
    name = source.name if isinstance(source, ModuleSource) else f"{source.module}:{source.function}"
    executable = Executable.from_bytes(result.serialized, source=f"the executable of {name}")
    assumed = (_TILES, _TRACED) if traced else (_TILES,)
    result = dataclasses.replace(result, notes=(*assumed, *result.notes))
    return _plan_compiled(executable, result, target, options.ffi_compatible)


def _ffi_traits(compatible: Sequence[str]) -> Mapping[str, bool]:
    return {**FFI_TRAITS, **dict.fromkeys(compatible, True)}


def _plan_compiled(
    executable: Executable, result: CompileResult, target: Target, ffi_compatible: Sequence[str]
) -> Plan:
    traits = _ffi_traits(ffi_compatible)
    conversion = convert(executable, device=executable.device or target.device, ffi_traits=traits)
    differences = grouping_differences(
        conversion, result.thunk_dumps.get("thunk_sequence_after_thunk_passes")
    )
    warnings = tuple(
        f"the grouping shown is not XLA's own, please report this: {difference}" for difference in differences
    )
    notes = (*target.warnings, *result.notes, *_mode_notes(executable.jaxlib))
    if executable.device is None:
        notes += (f"the executable does not describe its GPU: it was taken from target {target.name}",)
    if not differences:
        notes += ("the grouping agrees with XLA's own dump of this compilation",)
    return make_plan(
        executable,
        conversion,
        PlanContext(
            target=target.name,
            gpu=(executable.device or target.device).name,
            arguments=result.arguments,
            results=result.results,
            xla_flags=changed_flags(executable, jaxlib=result.versions.get("jaxlib"), hidden=OWN_OPTIONS),
            versions=result.versions,
            notes=notes,
            warnings=warnings,
        ),
    )


def _unused(options: PlanOptions) -> tuple[str, ...]:
    """Says which options of a compilation were given for what is compiled already."""
    given = {"--devices": options.devices, "--xla_flags": options.xla_flags}
    names = [name for name, value in given.items() if value is not None]
    verb = "were" if len(names) > 1 else "was"
    return (f"the executable is compiled already: {' and '.join(names)} {verb} not used",) if names else ()


def _with_notes(made: Plan, notes: tuple[str, ...]) -> Plan:
    context = dataclasses.replace(made.context, notes=(*notes, *made.context.notes))
    return dataclasses.replace(made, context=context) if notes else made


def _mode_notes(jaxlib: str | None) -> tuple[str, ...]:
    missing = missing_update_modes(jaxlib)
    if not missing:
        return ()
    return (f"jaxlib {jaxlib} has no {' and no '.join(missing)}: shown is what later releases would do",)


def _read(path: Path) -> bytes:
    """The file's bytes; gzip is undone only for a module's text, the decoder bounds its own input."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        start = zlib.decompressobj(wbits=31).decompress(data, 64)
        return gzip.decompress(data) if _MODULE_START.match(start) else data
    except (OSError, EOFError, zlib.error):
        return data  # damaged: the decoder says so
