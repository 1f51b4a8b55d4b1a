"""A range of device memory, by address and size; mirrors ``stream_executor/device_address.h``.

Invariant: an address names a range and owns nothing. Two are equal when pointer and size are (XLA's
``IsSameAs``).
"""

from __future__ import annotations

from dataclasses import dataclass

from jax_cmdbuf.errors import StatusCode, StatusError

__all__ = ["NULL_ADDRESS", "DeviceAddress", "round_up"]


def round_up(size: int, granularity: int) -> int:
    """``size`` bytes rounded up to a multiple of ``granularity`` bytes."""
    return -(-size // granularity) * granularity


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """``size`` bytes of device memory beginning at ``opaque``; ``opaque`` 0 is the null address."""

    opaque: int
    size: int

    @property
    def is_null(self) -> bool:
        """Whether this is the null address, which a zero-size allocation has."""
        return self.opaque == 0

    @property
    def end(self) -> int:
        """The first address behind the range."""
        return self.opaque + self.size

    def slice(self, offset: int, size: int) -> DeviceAddress:
        """The part of ``size`` bytes that begins ``offset`` bytes into this range (XLA's ``GetByteSlice``).

        Raises:
          StatusError: INVALID_ARGUMENT when the part is not inside the range.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                f"slice of {size} bytes at offset {offset} is outside the {self.size} bytes at "
                f"{self.opaque:#x}",
            )
        return DeviceAddress(self.opaque + offset, size)

    def overlaps(self, other: DeviceAddress) -> bool:
        """Whether the two ranges have a byte in common; null and empty ranges overlap nothing."""
        if not (self.opaque and other.opaque and self.size and other.size):
            return False
        return self.opaque < other.opaque + other.size and other.opaque < self.opaque + self.size

    def __str__(self) -> str:
        return f"{self.opaque:#x} ({self.size} bytes)"


NULL_ADDRESS = DeviceAddress(0, 0)
