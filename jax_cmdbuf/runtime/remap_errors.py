"""The errors that XLA's remapping ends an execution with, one class each; all are INTERNAL, as in XLA.

Mirrors the error returns of ``xla/service/gpu/gpu_executable_va_remap_allocator.cc``. Invariant: an execution
that ends with one of them has run nothing.
"""

from __future__ import annotations

from jax_cmdbuf.errors import StatusCode, StatusError

__all__ = ["AllocatorChangedError", "GranularityChangedError", "NullBufferError", "StreamMismatchError"]


class StreamMismatchError(StatusError):
    """The run's stream is not the one that the VMM allocator orders this device's frees by."""

    def __init__(self, module: str) -> None:
        super().__init__(
            StatusCode.INTERNAL, f"{module}: the VMM allocator's stream differs from the stream of the run"
        )


class AllocatorChangedError(StatusError):
    """An executable ran with one VMM allocator first and is now given another."""

    def __init__(self, module: str) -> None:
        super().__init__(StatusCode.INTERNAL, f"{module}: changed VMM allocator between executions")


class GranularityChangedError(StatusError):
    """The reservation was laid out for one granularity and the device now has another."""

    def __init__(self, module: str, before: int, now: int) -> None:
        super().__init__(
            StatusCode.INTERNAL, f"{module}: allocation granularity changed from {before} to {now} bytes"
        )


class NullBufferError(StatusError):
    """An allocation that is to be remapped has no buffer in this execution."""

    def __init__(self, module: str, allocation: int) -> None:
        super().__init__(
            StatusCode.INTERNAL, f"{module}: allocation {allocation} is selected for remapping but is null"
        )
