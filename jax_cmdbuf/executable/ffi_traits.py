"""Which typed-FFI targets XLA may record into a command buffer.

A handler declares this when it is registered (``XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE``); the
executable does not store it. Invariant: a target missing from the table counts as not compatible, as XLA's
default is.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["FFI_TRAITS"]

# target name -> whether its handler declares itself command-buffer compatible
FFI_TRAITS: Mapping[str, bool] = MappingProxyType({})
