"""One call of a simulated program: which devices it ran on, what was donated, and who gets its results.

Invariant: after ``hand_out`` every buffer that the call was given or made has one owner or was freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from jax_cmdbuf.api.arrays import ArrayBuffers
from jax_cmdbuf.api.signature import Arguments
from jax_cmdbuf.stream_executor.device_address import DeviceAddress

if TYPE_CHECKING:
    from jax_cmdbuf.api.simulated_runtime import SimulatedProgram

__all__ = ["SimulatedCall", "ordinals"]


class SimulatedCall:
    """One call: which devices, which of its arguments were donated, and who gets its outputs."""

    def __init__(
        self, program: SimulatedProgram, arguments: Arguments, results: Sequence[Any] | None
    ) -> None:
        self.program = program
        self.results = results
        self.kept = [arguments.leaves[position] for position in program.plan.kept]
        # A call that failed had its donated arguments consumed all the same.
        self.donated = frozenset(
            position
            for position, leaf in enumerate(self.kept)
            if isinstance(leaf, jax.Array) and leaf.is_deleted()
        )
        self.donated_ids = frozenset(id(self.kept[position]) for position in self.donated)
        self.refused = self._refused(arguments) if results is not None else None
        arrays = [leaf for leaf in (*self.kept, *(results or ())) if isinstance(leaf, jax.Array)]
        found = {ordinal for array in arrays for ordinal in ordinals(array)}
        self.ordinals = sorted(found) or [0]
        self._outputs: dict[int, tuple[DeviceAddress, ...] | None] = {}
        self._given: dict[int, list[DeviceAddress]] = {}

    def _refused(self, arguments: Arguments) -> int | None:
        """The first argument that PJRT would refuse, because something outside JAX refers to its memory.

        The CPU copies what it cannot take over, and leaves the array undeleted; a GPU's PJRT raises.
        """
        loaded, kept = self.program.loaded, self.program.plan.kept
        for position, (leaf, index) in enumerate(zip(self.kept, loaded.parameters, strict=True)):
            allocation = loaded.program.allocations[index]
            aliased = allocation.maybe_live_out or allocation.is_parameter_aliased_with_output
            if arguments.donated[kept[position]] and aliased and position not in self.donated:
                return position if isinstance(leaf, jax.Array) else None
        return None

    def returned(
        self, ordinal: int, outputs: tuple[DeviceAddress, ...] | None, given: list[DeviceAddress]
    ) -> None:
        """One device's outcome: result buffers, or None; and the buffers of the donated arguments."""
        self._outputs[ordinal] = outputs
        self._given[ordinal] = given

    def unclaimed(self, ordinal: int, free: Any) -> None:
        """Frees donated buffers that did not become results, and results that no array stands for."""
        outputs = self._outputs[ordinal]
        for address in self._given[ordinal]:
            if address not in (outputs or ()):
                free(address)
        if outputs is not None and len(outputs) != len(self.results or ()):
            for address in outputs:
                free(address)
            self._outputs[ordinal] = None

    def hand_out(self, arrays: ArrayBuffers) -> None:
        """Donated arguments lose their buffers; each result array gets its own."""
        for position in self.donated:
            arrays.disown(self.kept[position])
        for number, result in enumerate(self.results or ()):
            buffers = {
                ordinal: outputs[number]
                for ordinal, outputs in self._outputs.items()
                if outputs is not None and not outputs[number].is_null
            }
            if buffers and isinstance(result, jax.Array):
                arrays.own(result, buffers)


def ordinals(array: Any) -> list[int]:
    """Numbers of the addressable devices that an array lies on."""
    try:
        return sorted(device.id for device in array.sharding.addressable_devices)
    except (AttributeError, RuntimeError):
        return [0]
