"""The step of a capture session as data: its arguments by name, their types, and which results are the state.

Invariant: what ``bind`` and ``read`` return has exactly the shapes and dtypes that were captured; nothing
here runs the step.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_cmdbuf.errors import InputError

__all__ = ["CapturedStep", "Leaf", "Slot", "trace_step"]


class Leaf(NamedTuple):
    """An array of the step: its path for messages, shape and dtype."""

    path: str
    shape: tuple[int, ...]
    dtype: Any

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Slot:
    """One argument of the step.

    Attributes:
      name: the parameter's name, or its position where the function does not say.
      treedef: its structure.
      leaves: its place among the step's flattened arguments.
      types: its arrays.
    """

    name: str
    treedef: Any
    leaves: range
    types: tuple[Leaf, ...]

    def read(self, value: Any) -> list[Any]:
        """The arrays of a new value; numbers become arrays.

        Raises:
          InputError: another structure, shape or dtype than at the capture.
        """
        leaves, treedef = jax.tree.flatten(value)
        if treedef != self.treedef:
            raise InputError(f"{self.name} has the structure {treedef}, but {self.treedef} was captured")
        return [_checked(leaf, kind) for leaf, kind in zip(leaves, self.types, strict=True)]


@dataclass(frozen=True)
class CapturedStep:
    """A traced step.

    Attributes:
      name: of the function.
      given: the step as its caller jitted it, or just jitted.
      jitted: the step, jitted without donation or static arguments; unused arguments stay.
      args, kwargs: the arguments of the capture.
      state: the first argument.
      slots: the other arguments, by name.
      positional: names of those that may be given by position.
      arguments, results: all array types, flattened.
      outputs: structure of what is returned besides the state.
      output_leaves: its place among the flattened results; those before it are the new state.
    """

    name: str
    given: Any = field(repr=False)
    jitted: Any = field(repr=False)
    args: tuple[Any, ...] = field(repr=False)
    kwargs: dict[str, Any] = field(repr=False)
    state: Slot
    slots: Mapping[str, Slot]
    positional: tuple[str, ...]
    arguments: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    outputs: Any
    output_leaves: range

    def is_argument(self, value: Any) -> bool:
        """Whether ``value`` has the structure of the only argument, rather than being a list of arguments."""
        (slot,) = self.slots.values()
        return bool(jax.tree.structure(value) == slot.treedef)

    def bind(self, batch: tuple[Any, ...], named: dict[str, Any]) -> Iterator[tuple[Slot, list[Any]]]:
        """Which arguments get which arrays; all are checked before the first is returned.

        Raises:
          InputError: see ``CaptureSession.run``.
        """
        if len(batch) > len(self.positional):
            raise InputError(
                f"{self.name} takes {len(self.positional)} arguments after the state, not {len(batch)}"
            )
        given = dict(zip(self.positional, batch, strict=False))
        for name, value in named.items():
            if name not in self.slots:
                known = ", ".join(self.slots) or "none"
                raise InputError(f"{self.name} was captured without an argument {name!r}; it has: {known}")
            if name in given:
                raise InputError(f"{name} is given twice")
            given[name] = value
        return iter([(self.slots[name], self.slots[name].read(value)) for name, value in given.items()])


def trace_step(step: Any, state: Any, batch: tuple[Any, ...], named: dict[str, Any]) -> CapturedStep:
    """Traces ``step(state, *batch, **named)``.

    Raises:
      InputError: not a function, or one that does not return the state.
    """
    if not callable(step):
        raise InputError(f"capture() takes a function, not {step!r}")
    name = getattr(step, "__name__", None) or type(step).__name__
    # Jitted again: what the caller's own jit donates must not be taken away from the caller.
    jitted = jax.jit(step, keep_unused=True)
    args = (state, *batch)
    traced = jitted.trace(*args, **named)
    names = _names(step, len(args))
    types = _types(names, args, named, traced.args_info)
    slots = list(_slots((*names, *sorted(named)), (*args, *map(named.get, sorted(named))), types))
    result = traced.out_info
    outputs = _outputs(name, slots[0], result)
    flat = jax.tree_util.tree_flatten_with_path(result)[0]
    results = tuple(Leaf(f"result{_KEYSTR(path)}", leaf.shape, leaf.dtype) for path, leaf in flat)
    return CapturedStep(
        name=name,
        given=step if hasattr(step, "lower") else jax.jit(step),
        jitted=jitted,
        args=args,
        kwargs=named,
        state=slots[0],
        slots={slot.name: slot for slot in slots[1:]},
        positional=names[1:],
        arguments=types,
        results=results,
        outputs=jax.tree.structure(outputs),
        output_leaves=range(len(slots[0].leaves), len(results)),
    )


_KEYSTR = jax.tree_util.keystr


def _names(step: Any, count: int) -> tuple[str, ...]:
    """Names of the first ``count`` positional parameters, as far as the function says."""
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [parameter.name for parameter in parameters if parameter.kind in positional][:count]
    return (*known, *(f"argument {position}" for position in range(len(known), count)))


def _types(
    names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], info: Any
) -> tuple[Leaf, ...]:
    """All argument arrays, in the order in which JAX passes them."""
    values = [*zip(names, args, strict=True), *sorted(kwargs.items())]
    paths = [
        name + _KEYSTR(path)
        for name, value in values
        for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]
    ]
    return tuple(
        Leaf(path, tuple(each.shape), each.dtype)
        for path, each in zip(paths, jax.tree.leaves(info), strict=True)
    )


def _slots(names: tuple[str, ...], values: tuple[Any, ...], types: tuple[Leaf, ...]) -> Iterator[Slot]:
    first = 0
    for name, value in zip(names, values, strict=True):
        treedef = jax.tree.structure(value)
        leaves = range(first, first + len(jax.tree.leaves(value)))
        yield Slot(name, treedef, leaves, types[leaves.start : leaves.stop])
        first = leaves.stop


def _outputs(name: str, state: Slot, result: Any) -> Any:
    """What is returned besides the state, which comes first."""
    if isinstance(result, tuple) and result and _difference(state, result[0]) is None:
        return result[1] if len(result) == 2 else result[1:]
    if not state.types:
        return result
    difference = _difference(state, result)
    if difference is None:
        return ()
    if isinstance(result, tuple) and result:
        difference = _difference(state, result[0])
    raise InputError(f"{name} must return the new state, or a tuple that begins with it: {difference}")


def _difference(state: Slot, result: Any) -> str | None:
    """How a result differs from the state."""
    leaves, treedef = jax.tree.flatten(result)
    if treedef != state.treedef:
        return f"the state has the structure {state.treedef}, the result {treedef}"
    for before, after in zip(state.types, leaves, strict=True):
        found = Leaf(before.path, tuple(after.shape), after.dtype)
        if found != before:
            return f"{before.path} is {before}, and comes back as {found}"
    return None


def _checked(value: Any, kind: Leaf) -> Any:
    """The value as an array of the captured type."""
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
        value = value.astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False)
        if not value.shape and isinstance(value, np.ndarray) and np.can_cast(value, kind.dtype, "same_kind"):
            value = value.astype(kind.dtype, copy=False)
    if value.shape != kind.shape or value.dtype != kind.dtype:
        found = Leaf(kind.path, value.shape, value.dtype)
        raise InputError(
            f"{kind.path} is {found}, but {kind} was captured; "
            "other shapes and dtypes need a capture of their own"
        )
    return value
