"""Runs pytest as a Bazel test: the folders and files named on the command line, from the runfiles."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


def main() -> int:
    # The sandbox has no home; caches belong to the test's own scratch folder.
    os.environ["XDG_CACHE_HOME"] = os.environ["TEST_TMPDIR"]
    package = Path(__import__("jax_cmdbuf").__file__)
    if Path(os.environ["TEST_SRCDIR"]) not in package.parents:
        sys.exit(f"{package} is not the copy that Bazel built from declared sources")
    options = ["-p", "no:cacheprovider", f"--basetemp={os.environ['TEST_TMPDIR']}/pytest"]
    if report := os.environ.get("XML_OUTPUT_FILE"):
        options.append(f"--junitxml={report}")
    return pytest.main([*options, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
