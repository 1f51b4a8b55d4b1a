"""Python programs in processes of their own, which see nothing of this process's flags. Not a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import xla_flags

FLAGS = str(Path(xla_flags.__file__ or "").parents[1])


def run_python(code: str, arguments: Sequence[str] = (), **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs code as a program; its environment has what is given here and no other XLA_FLAGS."""
    inherited = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    path = os.pathsep.join(filter(None, (FLAGS, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **environ},
    )
