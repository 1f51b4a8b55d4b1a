"""What JAX calls before it starts its first backend: the entry in the group ``jax_plugins``.

JAX imports the module and calls ``initialize`` (``discover_pjrt_plugins`` of ``jax/_src/xla_bridge.py``)
before jaxlib reads ``XLA_FLAGS``, while it holds the lock of its plugins. Invariants: ``initialize`` never
raises, never asks JAX for devices (that would wait for that lock for ever), and without ``XLA_FLAGS`` costs
only the registration of our custom calls.

``JAX_CMDBUF_FLAGS`` says what to do about flags that an installed XLA would refuse: ``warn`` (default),
``repair`` or ``off``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import MutableMapping

__all__ = ["initialize"]

_LOGGER = logging.getLogger("jax_cmdbuf")


def initialize() -> None:
    """Checks ``XLA_FLAGS`` and registers this package's custom calls."""
    try:
        guard_flags(os.environ)
    except Exception as error:
        # A check that fails must not take away the GPU plugin or the user's program.
        _LOGGER.warning("jax_cmdbuf could not check XLA_FLAGS: %s: %s", type(error).__name__, error)
    try:
        from jax_cmdbuf.api.probe import register_probe

        register_probe()
    except Exception as error:
        _LOGGER.warning("jax_cmdbuf.probe will not work: %s: %s", type(error).__name__, error)


def guard_flags(environ: MutableMapping[str, str]) -> None:
    """Warns about, or repairs, ``XLA_FLAGS`` in an environment; see ``api.flag_guard``."""
    text = environ.get("XLA_FLAGS", "")
    if not text:
        return
    from jax_cmdbuf.api.defaults import FLAG_POLICY, UPDATE_MODE

    asked = environ.get(FLAG_POLICY) or "warn"
    if asked == "off":
        return
    from jax_cmdbuf.api.carriers import installed_carriers
    from jax_cmdbuf.api.flag_guard import FlagPolicy, check_flags

    if asked not in set(FlagPolicy):
        _LOGGER.warning("%s=%s is none of warn, repair, off; taken as warn", FLAG_POLICY, asked)
        asked = "warn"
    policy = FlagPolicy(asked)
    used = [carrier for carrier in installed_carriers() if carrier.is_used(environ)]
    check = check_flags(text, {carrier.title: carrier.catalog() for carrier in used}, policy)
    if check.text != text:
        environ["XLA_FLAGS"] = check.text
    if check.update_mode is not None:
        environ.setdefault(UPDATE_MODE, check.update_mode)
    for severity, line in check.lines:
        _LOGGER.log(logging.ERROR if severity == "error" else logging.WARNING, "%s", line)
    if not check.is_accepted:
        _LOGGER.error("JAX_CMDBUF_FLAGS=repair would drop or rewrite what is refused")
