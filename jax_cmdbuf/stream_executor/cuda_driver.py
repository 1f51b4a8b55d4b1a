"""One checked door to the CUDA driver: calls, error names and the context they need.

Stands for ``xla/stream_executor/cuda/cuda_status.cc``. Invariant: every refused call raises ``DriverError``
with the driver function, NVIDIA's name of the error and its explanation; nothing here keeps state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.stream_executor.memory import DriverError

__all__ = ["call", "check", "current_context", "driver", "retain_primary_context"]

try:
    from cuda.bindings import driver
except ImportError as error:  # pragma: no cover - the CPU test environment has the package
    raise MissingDependencyError(
        "the CUDA backend needs the package cuda-python: pip install 'jax-cmdbuf[cuda]'"
    ) from error


def call(name: str, *arguments: Any) -> Any:
    """Calls a driver function by name and returns its results: None, the one, or a tuple.

    Raises:
      DriverError: the driver refused; carries the function, the error's name and NVIDIA's explanation.
      MissingDependencyError: this machine has no CUDA driver.
    """
    try:
        status, *results = getattr(driver, name)(*arguments)
    except RuntimeError as error:
        raise MissingDependencyError(f"this machine has no usable CUDA driver ({name}: {error})") from error
    check(name, status)
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def check(name: str, status: Any) -> None:
    """Raises ``DriverError`` unless driver function ``name`` has returned success."""
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DriverError(name, status.name, _explain(status))


def _explain(status: Any) -> str:
    found, text = driver.cuGetErrorString(status)
    return text.decode() if found == driver.CUresult.CUDA_SUCCESS and text else "unknown error"


def retain_primary_context(device_ordinal: int) -> tuple[Any, Any]:
    """The device and its primary context (the one JAX uses), retained once more.

    Raises:
      DriverError: there is no such device.
    """
    call("cuInit", 0)
    device = call("cuDeviceGet", device_ordinal)
    return device, call("cuDevicePrimaryCtxRetain", device)


@contextmanager
def current_context(context: Any) -> Iterator[None]:
    """Makes ``context`` the calling thread's for the block."""
    call("cuCtxPushCurrent", context)
    try:
        yield
    finally:
        call("cuCtxPopCurrent")
