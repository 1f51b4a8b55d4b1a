"""Scripts for ``jax-cmdbuf run``, and processes that run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "va_remap"

# (a @ b) @ c, simulated with a recorded executable, so that nothing is compiled for a GPU.
TWO_GEMM = f"""
import sys
import jax.numpy as jnp
import jax_cmdbuf

@jax_cmdbuf.command_buffer(plan={str(RECORDED / "two_gemm_drop" / "executable.bin.gz")!r})
def multiply(a, b, c):
    return (a @ b) @ c

def matrix(n):
    return jnp.full((128, 128), n / 100, jnp.float32)
"""

LOOP = (
    TWO_GEMM
    + """
a, b, c = matrix(1), matrix(2), matrix(3)
for _ in range(6):
    result = multiply(a, b, c)
print("the script prints", result.shape, sys.argv[1:])
"""
)


def environment(**changes):
    """This process's, with JAX on CPU and our packages to be found."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "flags")])
    inherited = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return {**inherited, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **changes}


def start(*words, folder, **changes):
    """A process of ``jax-cmdbuf`` in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "jax_cmdbuf", *map(str, words)],
        cwd=folder,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words, folder, **changes):
    """The same, ended: (status, stdout, stderr)."""
    process = start(*words, folder=folder, **changes)
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, out, err
