"""Runs pytest as a Bazel test: the files named on the command line, with the modules that Bazel laid out.

Invariant: no module of this project comes from anywhere but the test's declared sources.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

OURS = ("jax_cmdbuf", "xla_flags")


def main() -> int:
    runfiles = Path(os.environ["TEST_SRCDIR"])
    scratch = os.environ["TEST_TMPDIR"]
    # .venv has this checkout installed in place, which would lend a test the modules it failed to declare.
    sys.path[:] = [
        entry
        for entry in sys.path
        if runfiles in Path(entry).parents or not any((Path(entry) / name).is_dir() for name in OURS)
    ]
    os.environ["XDG_CACHE_HOME"] = scratch  # the sandbox has no home
    options = ["-p", "no:cacheprovider", f"--basetemp={scratch}/pytest"]
    if report := os.environ.get("XML_OUTPUT_FILE"):
        options.append(f"--junitxml={report}")
    return pytest.main([*options, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
