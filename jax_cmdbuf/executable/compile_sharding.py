"""Which argument goes where when a function is compiled for several GPUs.

In this order: the shardings that the arguments carry (``<function>_args(mesh)`` may set them), else the names
the user gives (``--shard``), else the rule of ``_looks_like_a_batch``. Invariant: what is not split is
replicated, and the note says what was split.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile_devices import MESH_AXIS

__all__ = ["is_array", "place", "replicated", "struct"]


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an array or describes one: JAX, NumPy, ``ShapeDtypeStruct``."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def struct(array: Any, sharding: Sharding | None) -> jax.ShapeDtypeStruct:
    """What an array or a description of one looks like to ``jax.jit``, with this sharding."""
    dtype = array.dtype
    if not jnp.issubdtype(dtype, jax.dtypes.extended):
        dtype = jax.dtypes.canonicalize_dtype(dtype)  # as jit does: f64 is f32 unless 64-bit types are on
    weak_type = bool(getattr(array, "weak_type", False))
    return jax.ShapeDtypeStruct(array.shape, dtype, sharding=sharding, weak_type=weak_type)  # type: ignore[no-untyped-call]


def replicated(mesh: Mesh) -> Sharding:
    """A whole copy on every device of the mesh."""
    if mesh.size == 1:
        return SingleDeviceSharding(mesh.devices.flat[0])
    return NamedSharding(mesh, PartitionSpec())  # type: ignore[no-untyped-call]


def place(
    program: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    mesh: Mesh,
    shard: Sequence[str] | None,
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """Every array leaf as a struct on the mesh; other leaves stay as they are.

    Args:
      program: the function, asked for its parameter names.
      arguments, keywords: what it is called with.
      mesh: the devices, one axis.
      shard: names of arguments to split by their leading axis; None: by rule.

    Returns:
      Arguments, keywords and notes on what was split.

    Raises:
      InputError: ``shard`` names an argument that does not exist or cannot be split.
    """
    if mesh.size == 1:
        everything = jax.tree.map(lambda leaf: _on(leaf, replicated(mesh)), (arguments, keywords))
        return *everything, ()
    names = _names(program, arguments)
    split = _by_rule(names, arguments, keywords, mesh) if shard is None else tuple(shard)
    unknown = [name for name in split if name not in (*names, *keywords)]
    if unknown:
        known = ", ".join((*names, *keywords))
        raise InputError(f"--shard={unknown[0]}: the function has no such argument (it has {known})")
    given = {**dict(zip(names, arguments, strict=True)), **keywords}
    whole = [name for name in split if not any(_divisible(x, mesh) for x in jax.tree.leaves(given[name]))]
    if whole:
        raise InputError(f"--shard={whole[0]}: no array of it has a leading axis that {mesh.size} divides")
    note = (
        f"over {mesh.size} devices: split by the leading axis: {', '.join(split) or 'nothing'}; the rest "
        "is replicated unless it carries a sharding"
    )
    return (
        tuple(
            _placed(argument, name in split, mesh) for argument, name in zip(arguments, names, strict=True)
        ),
        {name: _placed(argument, name in split, mesh) for name, argument in keywords.items()},
        (note,),
    )


def _placed(argument: Any, split: bool, mesh: Mesh) -> Any:
    leading = NamedSharding(mesh, PartitionSpec(MESH_AXIS))  # type: ignore[no-untyped-call]

    def on_mesh(leaf: Any) -> Any:
        if not is_array(leaf):
            return leaf
        otherwise = leading if split and _divisible(leaf, mesh) else replicated(mesh)
        return _on(leaf, _own_sharding(leaf, mesh) or otherwise)

    return jax.tree.map(on_mesh, argument)


def _divisible(leaf: Any, mesh: Mesh) -> bool:
    return is_array(leaf) and bool(leaf.shape) and leaf.shape[0] % mesh.size == 0


def _names(program: Any, arguments: tuple[Any, ...]) -> tuple[str, ...]:
    """The parameter name of each positional argument; extra ones are "args[i]"."""
    try:
        parameters = list(inspect.signature(program).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    return tuple(named[i] if i < len(named) else f"args[{i}]" for i in range(len(arguments)))


def _by_rule(
    names: tuple[str, ...], arguments: tuple[Any, ...], keywords: dict[str, Any], mesh: Mesh
) -> tuple[str, ...]:
    if any(_own_sharding(leaf, mesh) for leaf in jax.tree.leaves((arguments, keywords))):
        return ()
    # By custom the first argument is the state: only a function of one argument is asked for that one.
    first = 1 if len(arguments) > 1 else 0
    candidates = zip(names[first:], arguments[first:], strict=True)
    return tuple(name for name, argument in candidates if _looks_like_a_batch(argument, mesh.size))


def _looks_like_a_batch(argument: Any, size: int) -> bool:
    """Whether all its arrays share one leading length that ``size`` divides; random-number keys do not."""
    leaves = [leaf for leaf in jax.tree.leaves(argument) if is_array(leaf)]
    lengths = {leaf.shape[0] if leaf.shape else 0 for leaf in leaves}
    is_key = all(leaf.shape == (2,) and str(leaf.dtype) == "uint32" for leaf in leaves)
    return len(lengths) == 1 and not is_key and (length := lengths.pop()) > 0 and length % size == 0


def _own_sharding(leaf: Any, mesh: Mesh) -> Sharding | None:
    """The leaf's own sharding if it is over exactly the mesh's devices, else None."""
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return None
    return sharding if set(sharding.mesh.devices.flat) == set(mesh.devices.flat) else None


def _on(leaf: Any, sharding: Sharding) -> Any:
    return struct(leaf, sharding) if is_array(leaf) else leaf
