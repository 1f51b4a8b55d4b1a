"""The stream on which XLA runs programs on a device.

Work enqueued there is ordered with XLA's own: behind the programs that make its inputs, before anything that
XLA later does with memory it was given back. Invariant: a device has one such stream for the whole process.
"""

from __future__ import annotations

import functools
import threading

import jax
import jax.numpy as jnp

from jax_cmdbuf.api.ffi import CallFrame, FfiHandler
from jax_cmdbuf.errors import StatusCode, StatusError

__all__ = ["compute_stream"]

_TARGET = "jax_cmdbuf.compute_stream"
_lock = threading.Lock()
# Local hardware number -> CUstream.
_streams: dict[int, int] = {}


def _note_stream(frame: CallFrame) -> None:
    _streams[frame.device_ordinal] = frame.stream


@functools.cache
def _register() -> None:
    FfiHandler(_TARGET, _note_stream, platform="CUDA").register()


@functools.cache
def compute_stream(device: jax.Device) -> int:
    """The device's ``CUstream``, learnt from a program that XLA runs there.

    Args:
      device: a CUDA device of this process.

    Raises:
      StatusError: UNIMPLEMENTED for a device of another platform.
      MissingDependencyError: the installed jaxlib's FFI cannot be spoken.
    """
    if device.platform not in ("cuda", "gpu"):
        raise StatusError(
            StatusCode.UNIMPLEMENTED, f"{device} is a {device.platform} device and has no stream"
        )
    with _lock:
        _register()
        with jax.default_device(device):
            jax.block_until_ready(jax.jit(_ask)())  # type: ignore[no-untyped-call]
        return _streams[device.local_hardware_id or 0]


def _ask() -> jax.Array:
    """A result that is ready only after the handler was called; its value is whatever lay there."""
    result = jax.ShapeDtypeStruct((), jnp.float32)  # type: ignore[no-untyped-call]
    asked: jax.Array = jax.ffi.ffi_call(_TARGET, result, has_side_effect=True)()
    return asked
