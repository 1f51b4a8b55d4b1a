"""How a jitted function's arguments and results become operands and results of one custom call.

Invariant: a call is described only if its program can be run by us with exactly XLA's values; everything else
is refused with the reason, so that the function can be left to XLA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_cmdbuf import _jax
from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.recordable import unsupported_thunks

__all__ = ["GraphCall", "describe_call"]


class GraphCall(NamedTuple):
    """The custom call of one signature.

    Attributes:
      kept: which of the flattened dynamic arguments the program takes, in the order of its parameters.
      results: types of the flattened results.
      weak: whether each result has a weak type.
      tree: how the results are put together.
      aliases: operand -> the result that is written in its memory.
    """

    kept: tuple[int, ...]
    results: tuple[jax.ShapeDtypeStruct, ...]
    weak: tuple[bool, ...]
    tree: Any
    aliases: Mapping[int, int]

    def emit(self, target: str, leaves: Sequence[Any], **attributes: Any) -> Any:
        """The custom call in the function that is being traced; returns what the function returns.

        Args:
          target: the handler's name.
          leaves: the flattened dynamic arguments.
          attributes: what the handler is told.
        """
        operands = [_physical(leaves[position]) for position in self.kept]
        call = jax.ffi.ffi_call(target, self.results, input_output_aliases=dict(self.aliases))
        results = call(*operands, **attributes)
        typed = [
            _jax.weakly_typed(value) if weak else value
            for value, weak in zip(results, self.weak, strict=True)
        ]
        return jax.tree.unflatten(self.tree, typed)


def describe_call(
    traced: jax.stages.Traced, lowered: jax.stages.Lowered, compiled: jax.stages.Compiled, program: Executable
) -> GraphCall:
    """The custom call that stands for a compiled function.

    Args:
      traced, lowered, compiled: the function, for arguments of one type.
      program: what ``compiled`` runs on the device.

    Raises:
      StatusError: UNIMPLEMENTED, with the reason why only XLA can run this program.
    """
    if devices := program.num_replicas * program.num_partitions - 1:
        raise _refused(f"it runs on {devices + 1} devices")
    if unsupported := unsupported_thunks(program):
        raise _refused(f"only XLA can run {unsupported[0]}")
    kept = _jax.kept_arguments(lowered)
    arguments = [jax.tree.leaves(lowered.in_avals)[position] for position in kept]
    results, tree = jax.tree.flatten(lowered.out_info)
    weak = tuple(aval.weak_type for aval in _jax.result_types(traced))
    _check_types(
        "argument", [_physical_type(each) for each in arguments], program.parameter_allocations, program
    )
    _check_types("result", results, program.result_allocations, program)
    _check_layouts(compiled)
    types = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in results)  # type: ignore[no-untyped-call]
    return GraphCall(
        kept, types, weak, tree, _aliases(program, [_physical_type(a) for a in arguments], types)
    )


def _refused(reason: str) -> StatusError:
    return StatusError(StatusCode.UNIMPLEMENTED, reason)


def _check_types(what: str, types: Sequence[Any], allocations: Sequence[int], program: Executable) -> None:
    """Whether program and function agree about these buffers."""
    if len(types) != len(allocations):
        raise _refused(f"the function has {len(types)} {what}s, the program {len(allocations)}")
    filled = []
    for number, (type_, index) in enumerate(zip(types, allocations, strict=True)):
        allocation = program.allocations[index]
        if jnp.issubdtype(type_.dtype, jax.dtypes.extended) or type_.dtype == jax.dtypes.float0:
            raise _refused(f"{what} {number} has the type {type_.dtype}")
        size = math.prod(type_.shape) * type_.dtype.itemsize
        if size != allocation.size or allocation.color:
            raise _refused(
                f"{what} {number} has {size} bytes, and XLA keeps it in {allocation.size} bytes of memory "
                f"space {allocation.color}"
            )
        filled += [index] if size else []
    if len(set(filled)) != len(filled):
        raise _refused(f"two {what}s are one buffer")
    if not types and what == "result":
        raise _refused("it returns nothing")


def _check_layouts(compiled: Any) -> None:
    """Custom calls want every array in its default layout."""
    given = jax.tree.leaves(compiled.input_formats, is_leaf=lambda leaf: leaf is None)
    formats = [*given, *jax.tree.leaves(compiled.output_formats)]
    for each in formats:
        order = getattr(getattr(each, "layout", None), "major_to_minor", None)
        if order is not None and tuple(order) != tuple(range(len(order))):
            raise _refused(f"an array has the layout {tuple(order)}")


def _aliases(program: Executable, arguments: Sequence[Any], results: Sequence[Any]) -> dict[int, int]:
    operands = {
        index: position
        for position, index in enumerate(program.parameter_allocations)
        if program.allocations[index].size
    }
    aliases = {}
    for number, index in enumerate(program.result_allocations):
        if (position := operands.get(index)) is None:
            continue
        one, other = arguments[position], results[number]
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise _refused(
                f"result {number}, {other.dtype}{list(other.shape)}, is written over an argument of type "
                f"{one.dtype}{list(one.shape)}"
            )
        aliases[position] = number
    return aliases


def _physical(leaf: Any) -> Any:
    """The array that the device has for an argument."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _physical_type(leaf: Any) -> Any:
    return jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))
