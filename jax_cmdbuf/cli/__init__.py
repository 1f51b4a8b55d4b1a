"""The ``jax-cmdbuf`` command."""

from __future__ import annotations

from jax_cmdbuf.cli.entry import main

__all__ = ["main"]
