"""Processes of their own, for what one process can do only once: choosing devices, flags, exiting."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code that can import what this process can, on CPU; keyword arguments are variables."""

    def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**inherited, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
