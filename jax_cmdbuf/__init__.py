"""See, simulate and steer how XLA:GPU records JAX programs into command buffers.

Public names are loaded on first use, so that importing the package imports neither JAX nor CUDA.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

# Public name -> the module that has it.
_PUBLIC = {
    "CmdbufError": "jax_cmdbuf.errors",
    "CompileError": "jax_cmdbuf.errors",
    "ContainerError": "jax_cmdbuf.errors",
    "Executable": "jax_cmdbuf.executable.executable",
    "InputError": "jax_cmdbuf.errors",
    "MissingDependencyError": "jax_cmdbuf.errors",
    "Plan": "jax_cmdbuf.report.model",
    "TargetError": "jax_cmdbuf.errors",
    "plan": "jax_cmdbuf.api.plan",
    "plan_source": "jax_cmdbuf.api.plan",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
