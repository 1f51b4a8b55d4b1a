"""A user's function and its arguments -> executable, in the worker process.

Invariant: every array argument becomes a ``jax.ShapeDtypeStruct`` on the compile-only devices before JAX sees
it (``compile_sharding``), so nothing is placed, copied or run.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jax_cmdbuf.errors import CmdbufError, CompileError, InputError
from jax_cmdbuf.executable.compile_devices import Compiled, data_mesh
from jax_cmdbuf.executable.compile_ffi import register_stand_ins
from jax_cmdbuf.executable.compile_log import explain, one_line
from jax_cmdbuf.executable.compile_module import argument_paths, result_paths
from jax_cmdbuf.executable.compile_sharding import is_array, place, replicated
from jax_cmdbuf.executable.shapes import ArrayShape, Shape, parse_shape

__all__ = ["compile_function"]

_SCALARS = (bool, int, float, complex)
_OURS = Path(__file__).parents[1]


def compile_function(
    module: str,
    function: str,
    shapes: Sequence[str],
    devices: tuple[Any, ...],
    shard: Sequence[str] | None,
    options: dict[str, str],
) -> Compiled:
    """Compiles ``function`` of ``module`` (a ``.py`` file or a dotted name).

    Args:
      module, function: where the function is.
      shapes: XLA shapes of its positional arguments; empty: its ``<function>_args`` says.
      devices: compile-only devices.
      shard: names of arguments to split over the devices by their leading axis; None: by rule.
      options: XLA options of this compilation.

    Raises:
      InputError: no such function, no arguments for it, or its own code failed.
      CompileError, MissingDependencyError: XLA refused the program.
    """
    where = f"{module}:{function}"
    namespace = _import(module)
    program = _find(namespace, module, function)
    mesh = data_mesh(devices)
    arguments, keywords = _arguments(namespace, program, where, function, shapes, mesh)
    program, arguments, keywords = _prepare(program, arguments, keywords)
    arguments, keywords, notes = place(program, arguments, keywords, mesh, shard)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lowered = _lower(program, arguments, keywords, mesh, where)
    notes += _donation_notes(caught)
    paths = argument_paths(lowered.compiler_ir()), result_paths(lowered.compiler_ir())
    register_stand_ins()
    try:
        executable = lowered.compile(compiler_options=options).runtime_executable()
        if hasattr(executable, "local_devices"):
            raise CompileError(
                f"JAX compiled {where} for the CPU: no argument and no result of it is on the GPU"
            )
        return Compiled(executable.serialize(), *paths, notes)
    except CmdbufError:
        raise
    except Exception as error:  # jaxlib's errors have no common base between releases
        raise explain(str(error)) from error


def _import(module: str) -> Any:
    try:
        if not module.endswith(".py"):
            if Path(module).is_file():
                raise InputError(f"{module} is not a Python file; what is in it is named without a function")
            return importlib.import_module(module)
        path = Path(module).resolve()
        if not path.is_file():
            raise InputError(f"no such file: {module}")
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise InputError(f"{module} is not a Python file")
        namespace = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = namespace
        spec.loader.exec_module(namespace)
        return namespace
    except CmdbufError:
        raise
    except BaseException as error:  # the user's module may do anything, sys.exit() included
        raise _users_fault(f"importing {module}", error) from error


def _find(namespace: Any, module: str, function: str) -> Callable[..., Any]:
    try:
        found = functools.reduce(getattr, function.split("."), namespace)
    except AttributeError:
        names = sorted(
            name
            for name, value in vars(namespace).items()
            if (inspect.isroutine(value) or hasattr(value, "lower"))
            and not name.endswith(("_args", "_kwargs"))
        )
        own = [
            name for name in names if getattr(vars(namespace)[name], "__module__", "") == namespace.__name__
        ]
        hint = f"; it has {', '.join(own)}" if own else ""
        raise InputError(f"{module} has no function {function}{hint}") from None
    if not callable(found):
        raise InputError(f"{module}:{function} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _arguments(
    namespace: Any, program: Any, where: str, function: str, shapes: Sequence[str], mesh: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: from ``--arg``, else from the functions beside the program."""
    if shapes:
        return tuple(_struct(parse_shape(shape)) for shape in shapes), {}
    positional = _beside(namespace, f"{function}_args", mesh)
    keywords = _beside(namespace, f"{function}_kwargs", mesh)
    if positional is None and keywords is None and _needs_arguments(program):
        raise InputError(
            f"no arguments for {where}: define {function}_args() beside it, returning its positional "
            "arguments, or give --arg='f32[128,256]' for each"
        )
    if positional is None:
        positional = ()
    if not isinstance(positional, tuple | list):
        positional = (positional,)
    if keywords is not None and not isinstance(keywords, dict):
        raise InputError(f"{function}_kwargs() must return a dictionary, not a {type(keywords).__name__}")
    return tuple(positional), dict(keywords or {})


def _beside(namespace: Any, name: str, mesh: Any) -> Any:
    """What the function ``name`` returns, None if there is none; it is given the mesh if it takes one."""
    try:
        maker = functools.reduce(getattr, name.split("."), namespace)
    except AttributeError:
        return None
    try:
        return maker(mesh=mesh) if "mesh" in inspect.signature(maker).parameters else maker()
    except BaseException as error:  # the user's function may do anything, sys.exit() included
        raise _users_fault(f"calling {name}", error) from error


def _needs_arguments(program: Any) -> bool:
    try:
        parameters = inspect.signature(program).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(
        parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in parameters
    )


def _struct(shape: Shape) -> Any:
    if not isinstance(shape, ArrayShape):
        return tuple(_struct(element) for element in shape)
    if shape.dtype in ("int64", "uint64", "float64", "complex128") and not jax.config.jax_enable_x64:
        raise InputError(f"an --arg of {shape.dtype} needs 64-bit types switched on: set JAX_ENABLE_X64=1")
    return jax.ShapeDtypeStruct(shape.dimensions, jnp.dtype(shape.dtype))  # type: ignore[no-untyped-call]


def _prepare(
    program: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A function that ``lower`` accepts these arguments for.

    A plain function is jitted; leaves that are no arrays (activation functions, strings) are held constant,
    as Equinox does. A bound method of a jitted function is called with its object, as Python does; asked for
    ``lower``, it would answer for the function without it. Equinox's own ``filter_jit`` is undone, because it
    does not know ``ShapeDtypeStruct``.
    """
    donated: tuple[int, ...] = ()
    dynamic: tuple[type, ...] = _SCALARS
    if inspect.ismethod(program) and hasattr(program, "lower"):
        program, arguments = program.__func__, (program.__self__, *arguments)
    if hasattr(program, "donate_first") and hasattr(program, "__wrapped__"):
        chosen = (program.donate_first, *[program.donate_rest] * max(len(arguments) - 1, 0))
        donated = tuple(number for number, flag in enumerate(chosen[: len(arguments)]) if flag)
        program, dynamic = program.__wrapped__, ()
    elif hasattr(program, "lower"):
        return program, arguments, keywords

    def is_dynamic(leaf: Any) -> bool:
        return is_array(leaf) or isinstance(leaf, dynamic)

    static = jax.tree.map(lambda leaf: None if is_dynamic(leaf) else leaf, (arguments, keywords))
    given = jax.tree.map(lambda leaf: leaf if is_dynamic(leaf) else None, (arguments, keywords))

    @functools.wraps(program)
    def with_static_leaves(*args: Any, **kwargs: Any) -> Any:
        merged_args, merged_kwargs = jax.tree.map(
            lambda fixed, traced: traced if fixed is None else fixed,
            static,
            (args, kwargs),
            is_leaf=lambda leaf: leaf is None,
        )
        result = program(*merged_args, **merged_kwargs)
        return jax.tree.map(
            lambda leaf: leaf if is_array(leaf) or isinstance(leaf, _SCALARS) else None, result
        )

    if not jax.tree.leaves(static) and not donated:
        return jax.jit(program), arguments, keywords
    return jax.jit(with_static_leaves, donate_argnums=donated), *given


def _lower(program: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], mesh: Any, where: str) -> Any:
    many = mesh.devices.size > 1
    if not any(is_array(leaf) for leaf in jax.tree.leaves((arguments, keywords))):
        # Nothing else would say that the program is for the GPU.
        inner, fixed = program, (arguments, keywords)

        @functools.wraps(inner)
        def without_arguments() -> Any:
            return inner(*fixed[0], **fixed[1])

        program, arguments, keywords = jax.jit(without_arguments, out_shardings=replicated(mesh)), (), {}
    try:
        with jax.set_mesh(mesh) if many else nullcontext():
            return program.lower(*arguments, **keywords)
    except Exception as error:  # the user's function may raise anything while it is traced
        explained = explain(str(error))
        if type(explained) is not CompileError or "remove the callback" in str(explained):
            raise explained from error
        raise _users_fault(f"tracing {where}", error) from error


def _donation_notes(caught: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """JAX's warning that a donation does nothing, which decides whether a result's address can stay."""
    messages = dict.fromkeys(one_line(str(each.message)) for each in caught)
    return tuple(f"JAX: {each.split(' See ')[0]}" for each in messages if "donated buffers" in each)


def _users_fault(what: str, error: BaseException) -> InputError:
    """The user's own exception in one sentence, with the place in their code."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
        and not Path(frame.filename).is_relative_to(_OURS)
        and not frame.filename.startswith("<")
    ]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return InputError(f"{what} failed: {type(error).__name__}: {one_line(str(error))}{place}")
