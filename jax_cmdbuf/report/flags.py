"""Which XLA flags of a compiled program differ from their default.

Invariant: only what the user can have set is listed; options that this package sets for its own
  compilations are not.
"""

from __future__ import annotations

from collections.abc import Mapping

from jax_cmdbuf.executable.executable import Executable

__all__ = ["changed_flags"]


def changed_flags(executable: Executable) -> Mapping[str, object]:
    """Flag -> value, where it is not the default of the jaxlib that compiled; empty where that is unknown."""
    return {}
