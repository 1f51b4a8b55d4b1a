"""Where the installed jaxlib is, for tests that ask it. Not a test."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

INSTALLED = importlib.util.find_spec("jaxlib") is not None
needs_jaxlib = pytest.mark.skipif(not INSTALLED, reason="no jaxlib is installed")


def library() -> Path:
    from xla_flags.installed import installed_library

    return installed_library()
