"""Where the arrays of one call lie, read as fast as Python can.

Reading an address waits for nothing but the buffer's allocation, never for its value, and keeps no array.
Invariant: a reader is immutable; what it cannot read is None, which equals no address.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import Any

import jax

from jax_cmdbuf import _jax

__all__ = ["UNREADABLE", "AddressReader", "Addresses", "CallForm"]

# Per leaf; of several devices: all leaves of the first one, then of the second...
Addresses = list[int | None]

# What reading a host value, a deleted array, a tracer or an array without such a shard raises.
UNREADABLE = (AttributeError, TypeError, ValueError, RuntimeError, IndexError)

# What ``jax.tree.leaves`` calls in the end.
_flatten = jax.tree_util.default_registry.flatten
_Address = Callable[[Any], int]


class CallForm:
    """What is alike in all calls of one signature.

    Attributes:
      are_arguments_leaves: whether each argument is an array, and none is given by keyword.
      is_result_leaf: whether the result is an array.
      is_sharded: whether an array lies on several of the process's devices.
      address: reads the address of an array that does not.
    """

    __slots__ = ("address", "are_arguments_leaves", "is_result_leaf", "is_sharded")

    def __init__(
        self, args: tuple[Any, ...] = (None,), kwargs: Mapping[str, Any] | None = None, result: Any = None
    ) -> None:
        self.are_arguments_leaves = not kwargs and all(map(_is_leaf, args))
        self.is_result_leaf = _is_leaf(result)
        arrays = [leaf for leaf in jax.tree.leaves((args, kwargs, result)) if _is_leaf(leaf)]
        self.is_sharded = any(len(array.sharding.addressable_devices) > 1 for array in arrays)
        # The unbound method is quicker; where arrays of another class come (random keys), reading falls back.
        self.address: _Address = (
            type(arrays[0]).unsafe_buffer_pointer if arrays else methodcaller("unsafe_buffer_pointer")
        )


class AddressReader:
    """Reads some leaves of a call's arguments and result.

    Reading a call of another form raises one of ``UNREADABLE``.

    Attributes:
      devices: how many of the process's devices are read.
      arguments: ``arguments(args, kwargs)`` gives the addresses of the chosen arguments.
      results: ``results(result)`` gives the addresses of the chosen leaves of the result.
    """

    __slots__ = ("_form", "arguments", "devices", "results")

    def __init__(
        self,
        form: CallForm | None = None,
        devices: int = 1,
        arguments: Sequence[int] | None = None,
        results: Sequence[int] | None = None,
    ) -> None:
        """Makes a reader for calls of one form.

        Args:
          form: of the calls; None: unknown.
          devices: how many of the addressable devices to read, from the first.
          arguments, results: which leaves of ``(args, kwargs)`` and of the result; None: all.
        """
        self.devices = devices
        self._form = form = form or CallForm()
        if form.is_sharded or devices > 1:
            read = functools.partial(_read_shards, devices)
            self.arguments = _arguments_reader(read, _picker(arguments))
            self.results = _results_reader(read, _picker(results))
        else:
            self.arguments = _plain_arguments(form, arguments)
            self.results = _plain_results(form, results)

    def narrowed(self, arguments: Sequence[int] | None, results: Sequence[int] | None) -> AddressReader:
        """A reader of fewer leaves, and of the first device only."""
        return AddressReader(self._form, 1, arguments, results)


_Read = Callable[[Sequence[Any]], Addresses]
_Pick = Callable[[Sequence[Any]], Sequence[Any]]
_ReadArguments = Callable[[tuple[Any, ...], dict[str, Any]], Addresses]


# The functions made here are called in every call that is read; for one device, where a frame of Python's
# counts, they are spelled out.


def _plain_arguments(form: CallForm, positions: Sequence[int] | None) -> _ReadArguments:
    address, are_leaves, pick = form.address, form.are_arguments_leaves, _picker(positions)
    if pick is not None:
        return _arguments_reader(functools.partial(_read_plain, address), pick)

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Addresses:
        try:
            return [address(leaf) for leaf in (args if are_leaves else _flatten((args, kwargs))[0])]
        except UNREADABLE:
            return _one_by_one(_flatten((args, kwargs))[0], 1)

    return read


def _plain_results(form: CallForm, positions: Sequence[int] | None) -> Callable[[Any], Addresses]:
    address, is_leaf, pick = form.address, form.is_result_leaf, _picker(positions)
    if pick is not None:
        return _results_reader(functools.partial(_read_plain, address), pick)

    def read(result: Any) -> Addresses:
        try:
            return [address(result)] if is_leaf else [address(leaf) for leaf in _flatten(result)[0]]
        except UNREADABLE:
            return _one_by_one(_flatten(result)[0], 1)

    return read


def _arguments_reader(read: _Read, pick: _Pick | None) -> _ReadArguments:
    if pick is None:
        return lambda args, kwargs: read(_flatten((args, kwargs))[0])
    return lambda args, kwargs: read(pick(_flatten((args, kwargs))[0]))


def _results_reader(read: _Read, pick: _Pick | None) -> Callable[[Any], Addresses]:
    if pick is None:
        return lambda result: read(_flatten(result)[0])
    return lambda result: read(pick(_flatten(result)[0]))


def _read_plain(address: _Address, leaves: Sequence[Any]) -> Addresses:
    try:
        return [address(leaf) for leaf in leaves]
    except UNREADABLE:
        return _one_by_one(leaves, 1)


def _read_shards(devices: int, leaves: Sequence[Any]) -> Addresses:
    try:
        shards = [_jax.shards_of(leaf) for leaf in leaves]
        return [parts[device].unsafe_buffer_pointer() for device in range(devices) for parts in shards]
    except UNREADABLE:
        return _one_by_one(leaves, devices)


def _picker(positions: Sequence[int] | None) -> _Pick | None:
    if positions is None:
        return None
    if not positions:
        return lambda leaves: ()
    if len(positions) > 1:
        return itemgetter(*positions)
    only = positions[0]
    return lambda leaves: (leaves[only],)


def _one_by_one(leaves: Sequence[Any], devices: int) -> Addresses:
    return [_try(leaf, device) for device in range(devices) for leaf in leaves]


def _try(leaf: Any, device: int) -> int | None:
    try:
        address: int = leaf.addressable_shards[device].data.unsafe_buffer_pointer()
    except UNREADABLE:
        return None
    return address


def _is_leaf(value: Any) -> bool:
    return isinstance(value, jax.Array)
