"""Calls a function as soon as a module has been imported, whoever imports it.

Invariant: the module's own loader loads it; importing it gives what it always gives.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["after_import"]


@contextmanager
def after_import(name: str, then: Callable[[], None]) -> Iterator[None]:
    """While it lasts, the first import of a module is followed by a call, at once if it is imported already.

    Args:
      name: of a top-level module.
      then: what to call, before the importing code goes on.
    """
    if name in sys.modules:
        then()
        yield
        return
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.remove()


class _Finder(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def remove(self) -> None:
        """Does nothing if it was removed before."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Lets the other finders find the module, and has their loader tell when it is loaded."""
        if fullname != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self._then()

        # The loader was made for this one module.
        loader.exec_module = exec_module
        return spec
