"""Replaces the public ``jax.jit``, so that functions which a script jits can be watched without being edited.

Invariant: whoever calls the replacement gets what ``jax.jit`` would give, decorated; jax's own modules and
this
package's get what ``jax.jit`` gives; once the context has ended, so does everybody who kept the replacement.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

__all__ = ["every_jit"]

_LEFT_ALONE = ("jax", "jaxlib", "jax_cmdbuf")


@contextmanager
def every_jit(decorate: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, ``jax.jit`` gives functions that are decorated.

    Modules that are imported meanwhile see it as ``from jax import jit`` and
    ``functools.partial(jax.jit, ...)`` too; what was jitted before stays as it is.

    Args:
      decorate: takes a jitted function.
    """
    original: Any = jax.jit
    is_on = True

    @functools.wraps(original)
    def jit(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if not is_on or caller.partition(".")[0] in _LEFT_ALONE:
            return made
        if hasattr(made, "lower"):
            return decorate(made)
        return lambda fun: decorate(made(fun))  # options only: a decorator

    jax.jit = jit
    try:
        yield
    finally:
        is_on = False
        # Somebody may have put a wrapper around ours; then it stays and passes calls on.
        if jax.jit is jit:
            jax.jit = original
