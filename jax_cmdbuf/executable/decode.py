"""Proto messages -> :class:`Executable`."""

from __future__ import annotations

from jax_cmdbuf.executable.executable import Executable

__all__ = ["decode_executable"]


def decode_executable(data: bytes, *, source: str = "the input") -> Executable:
    """Reads a serialized executable; see :meth:`Executable.from_bytes`."""
    raise NotImplementedError
