"""See, simulate and steer how XLA:GPU records JAX programs into command buffers.

Public names are loaded on first use, so that importing the package imports neither JAX nor CUDA.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_cmdbuf.api.capture import CaptureSession as CaptureSession
    from jax_cmdbuf.api.capture import capture as capture
    from jax_cmdbuf.api.decorator import command_buffer as command_buffer
    from jax_cmdbuf.api.plan import PlanOptions as PlanOptions
    from jax_cmdbuf.api.plan import plan as plan
    from jax_cmdbuf.api.plan import plan_executable as plan_executable
    from jax_cmdbuf.api.plan import plan_source as plan_source
    from jax_cmdbuf.api.probe import probe as probe
    from jax_cmdbuf.errors import CmdbufError as CmdbufError
    from jax_cmdbuf.errors import CompileError as CompileError
    from jax_cmdbuf.errors import ContainerError as ContainerError
    from jax_cmdbuf.errors import InputError as InputError
    from jax_cmdbuf.errors import MissingDependencyError as MissingDependencyError
    from jax_cmdbuf.errors import StatusError as StatusError
    from jax_cmdbuf.errors import TargetError as TargetError
    from jax_cmdbuf.executable.executable import Executable as Executable
    from jax_cmdbuf.report.model import Plan as Plan

__version__ = "0.1.0"

# Public name -> the module that has it.
_HOME = {
    "CaptureSession": "api.capture",
    "CmdbufError": "errors",
    "CompileError": "errors",
    "ContainerError": "errors",
    "Executable": "executable.executable",
    "InputError": "errors",
    "MissingDependencyError": "errors",
    "Plan": "report.model",
    "PlanOptions": "api.plan",
    "StatusError": "errors",
    "TargetError": "errors",
    "capture": "api.capture",
    "command_buffer": "api.decorator",
    "plan": "api.plan",
    "plan_executable": "api.plan",
    "plan_source": "api.plan",
    "probe": "api.probe",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
