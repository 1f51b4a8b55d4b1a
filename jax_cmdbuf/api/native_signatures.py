"""Which of a jitted function's executables a call runs, found without asking JAX.

JAX keeps one entry per signature in a cache that tells its size. While all entries are known here, a call is
one of them, and what tells them apart is enough to know which; a call that is none of them makes the cache
grow, which tells that the guess was wrong. Invariant: where that does not help, the whole signature is
compared: all that JAX tells executables apart by.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

import jax

from jax_cmdbuf import _jax

__all__ = ["SignatureKey", "Signatures"]

_V = TypeVar("_V")


class SignatureKey(NamedTuple):
    """Equal for calls of one signature: structure and static arguments, settings, kinds of the leaves."""

    structure: Hashable
    static: Hashable
    context: Hashable
    leaves: tuple[Hashable, ...]


class Signatures(Generic[_V]):
    """The signatures that were seen of one jitted function, with a value for each.

    Attributes:
      complete: the size that JAX's cache had when every entry of it was known here; -1: it never had.
      only: the one value that all of them have; None: they have several.
      static: numbers and names of the static arguments.
    """

    def __init__(self, jitted: Any) -> None:
        self.static = _jax.static_arguments(jitted)
        self.complete = -1
        self.only: _V | None = None
        self._context: Callable[[], Hashable] = _jax.trace_context_reader()
        self._values: dict[SignatureKey, _V] = {}
        # The way to a leaf whose kind no two signatures share, and what it tells.
        self._way: tuple[Any, ...] | None = None
        self._by_kind: dict[Hashable, _V] = {}

    def find(self, size: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _V | None:
        """The value of a call's signature, or None for one that is new.

        A new signature may be taken for another one if ``size`` is ``complete``; the cache grows then.

        Args:
          size: of JAX's cache.
          args, kwargs: the call's.
        """
        if size == self.complete and self._way is not None:
            try:
                value = self._by_kind.get(_kind(_follow(self._way, (args, kwargs))))
            except (LookupError, TypeError, AttributeError):
                value = None  # a call of another structure
            if value is not None:
                return value
        key = self.key(args, kwargs)
        if key is None:
            return None
        if len(self._values) == size:
            self.complete = size
        return self._values.get(key)

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SignatureKey | None:
        """The key of a call; None for one that JAX will refuse."""
        numbers, names = self.static
        try:
            leaves, structure = jax.tree.flatten((args, kwargs))
            static = tuple(args[number] for number in numbers if -len(args) <= number < len(args))
            static += tuple(kwargs[name] for name in names if name in kwargs)
            key = SignatureKey(structure, static, self._context(), tuple(map(_kind, leaves)))
            hash(key)
        except (TypeError, ValueError):
            return None
        return key

    def get(self, key: SignatureKey) -> _V | None:
        """The value of a signature; None for one that is new."""
        return self._values.get(key)

    def add(
        self, key: SignatureKey, value: _V, size: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """A call of a new signature was made.

        Args:
          key: of the signature.
          value: for it.
          size: of JAX's cache now.
          args, kwargs: the call's.
        """
        self.complete, self.only = -1, None
        self._values[key] = value
        values = list(self._values.values())
        place = self._find_place()
        self._way = _way_to(place, (args, kwargs)) if place >= 0 else None
        self._by_kind = (
            {key.leaves[place]: value for key, value in self._values.items()} if place >= 0 else {}
        )
        if all(each is value for each in values):
            self.only = value
        if len(values) == size:
            self.complete = size

    def clear(self) -> None:
        """JAX's cache was cleared."""
        self.complete, self.only = -1, None
        self._values.clear()
        self._way = None

    def _find_place(self) -> int:
        keys = list(self._values)
        if len({key[:3] for key in keys}) > 1:
            return -1
        for place, kinds in enumerate(zip(*(key.leaves for key in keys), strict=True)):
            if len(set(kinds)) == len(keys):
                return place
        return -1


def _kind(leaf: Any) -> Hashable:
    if isinstance(leaf, jax.Array):
        return leaf.aval, leaf.sharding, leaf.committed
    return type(leaf), getattr(leaf, "shape", None), getattr(leaf, "dtype", None)


def _way_to(place: int, tree: Any) -> tuple[Any, ...] | None:
    """How to get from a tree to a leaf by indices and attributes; None where that is not possible."""
    path, _ = jax.tree_util.tree_flatten_with_path(tree)[0][place]
    kinds = (jax.tree_util.SequenceKey, jax.tree_util.DictKey, jax.tree_util.GetAttrKey)
    return path if all(isinstance(key, kinds) for key in path) else None


def _follow(way: tuple[Any, ...], tree: Any) -> Any:
    for key in way:
        if isinstance(key, jax.tree_util.DictKey):
            tree = tree[key.key]
        elif isinstance(key, jax.tree_util.SequenceKey):
            tree = tree[key.idx]
        else:
            tree = getattr(tree, key.name)
    return tree
