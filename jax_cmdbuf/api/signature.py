"""The arguments of one call of a jitted function: leaves, paths, and what tells its signature from others.

Invariant: two calls with equal keys run the same executable of the function. Shardings that place an array
alike are equal, however they are spelled: JAX compiles once for them, and a profile is one executable's.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax

from jax_cmdbuf import _jax

__all__ = ["Arguments", "flatten_arguments", "is_tracing", "read_arguments"]


class Arguments(NamedTuple):
    """What a jitted function was called with.

    Attributes:
      leaves: the flattened dynamic arguments.
      paths: where each came from ("params['w']"); the parameter's name first where it is known.
      donated: whether the caller gives each leaf away.
      traced: the function traced for these arguments, which JAX keeps and gives again for the same types.
      key: equal for calls of one executable.
    """

    leaves: tuple[Any, ...]
    paths: tuple[str, ...]
    donated: tuple[bool, ...]
    traced: jax.stages.Traced
    key: Hashable


def is_tracing(tree: Any) -> bool:
    """Whether any leaf stands for a value that is not computed yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def read_arguments(
    jitted: Any, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Arguments:
    """Flattens a call's arguments and finds its signature.

    Args:
      jitted: the jitted function.
      names: its positional parameters' names, as far as they are known.
      args, kwargs: the call's arguments.
    """
    leaves, paths = flatten_arguments(jitted, names, args, kwargs)
    traced = jitted.trace(*args, **kwargs)
    placements = tuple(
        _placement(leaf.sharding, leaf.shape) if isinstance(leaf, jax.Array) else None for leaf in leaves
    )
    donated = tuple(info.donated for info in jax.tree.leaves(traced.args_info))
    return Arguments(leaves, paths, donated, traced, (_Identity(traced.jaxpr), placements))


@functools.lru_cache(4096)
def _placement(sharding: jax.sharding.Sharding, shape: tuple[int, ...]) -> Hashable:
    """Which part of an array of this shape is where: per device, in order, and kind of memory."""
    parts: Any = sharding.devices_indices_map(shape).items()
    return sharding.memory_kind, tuple(
        (device.id, tuple(part.indices(size) for part, size in zip(index, shape, strict=True)))
        for device, index in parts
    )


def flatten_arguments(
    jitted: Any, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Leaves of the dynamic arguments, in the order in which JAX takes them, and the path of each.

    Args:
      jitted: the jitted function.
      names: its positional parameters' names, as far as they are known.
      args, kwargs: the call's arguments.
    """
    static_numbers, static_names = _jax.static_arguments(jitted)
    static = {number % len(args) if number < 0 else number for number in static_numbers} if args else set()
    dynamic = {number: value for number, value in enumerate(args) if number not in static}
    keywords = {name: value for name, value in kwargs.items() if name not in static_names}
    named, _ = jax.tree_util.tree_flatten_with_path((dynamic, keywords))
    leaves = tuple(leaf for _, leaf in named)
    return leaves, tuple(_path(path, names) for path, _ in named)


def _path(path: tuple[Any, ...], names: tuple[str, ...]) -> str:
    """ "params['w']": the first two entries say whether it is a keyword, and which argument."""
    place, argument, *rest = path
    if place.idx == 0:
        number = argument.key
        head = names[number] if number < len(names) else f"args[{number}]"
    else:
        head = str(argument.key)
    return head + jax.tree_util.keystr(tuple(rest))


class _Identity:
    """Equal to itself only, and keeps its object, so that no other can take its place."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)
