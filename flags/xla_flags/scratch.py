"""The state that setters change while a text is read.

Invariant: defaults are never changed; a list or map is copied from its default on the first write.
"""

from __future__ import annotations

import copy
from typing import Any

from xla_flags.schema import Catalog


class FatalValue(Exception):  # noqa: N818 - it never leaves the parser; the process it speaks of ends
    """A value with which XLA ends the process at once; its text is XLA's message."""


class Scratch:
    """Fields written so far, and what was logged.

    Attributes:
      catalog: the jaxlib.
      plain: field -> value, in the form of `ParseResult.plain`.
      log: lines logged so far, led by their severity.
      fuel: what the last fuel flag gave: HLO pass -> amount.
    """

    __slots__ = ("catalog", "fuel", "log", "plain")

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.plain: dict[str, Any] = {}
        self.log: list[str] = []
        self.fuel: dict[str, int] = {}

    def list_of(self, field: str) -> list[Any]:
        """The current list of a repeated field, to be changed in place."""
        written: list[Any] = self._written(field)
        return written

    def dict_of(self, field: str) -> dict[str, Any]:
        """The current value of a map or message field, to be changed in place."""
        written: dict[str, Any] = self._written(field)
        return written

    def _written(self, field: str) -> Any:
        if field not in self.plain:
            self.plain[field] = copy.deepcopy(self.catalog.fields[field].default)
        return self.plain[field]
