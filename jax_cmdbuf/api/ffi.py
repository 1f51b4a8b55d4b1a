"""XLA FFI handlers written in Python: a custom call whose implementation is a function of this process.

Speaks the C ABI of ``xla/ffi/api/c_api.h`` through ctypes; layouts and version come from the installed header
(``ffi_header``), the entry from the gate (``ffi_gate``). Invariant: a handler never lets an exception out to
XLA's C++; whatever its function raises comes back to the caller as an XLA error that names the handler.
"""

from __future__ import annotations

import ctypes
import functools
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntFlag
from math import prod
from types import TracebackType
from typing import Any, NamedTuple

import jax

from jax_cmdbuf.api.ffi_abi import Abi, element_bits, installed_abi, read_attribute
from jax_cmdbuf.api.ffi_gate import process_gate
from jax_cmdbuf.errors import StatusCode, StatusError

__all__ = ["Buffer", "CallFrame", "ExecutionStage", "FfiHandler", "HandlerTraits"]


class ExecutionStage(Enum):
    """``XLA_FFI_ExecutionStage``: when a handler is called."""

    INSTANTIATE = "INSTANTIATE"
    PREPARE = "PREPARE"
    INITIALIZE = "INITIALIZE"
    EXECUTE = "EXECUTE"
    RECORD = "RECORD"


class HandlerTraits(IntFlag):
    """``XLA_FFI_Handler_TraitsBits``: what a handler promises XLA."""

    NONE = 0
    # Each call launches the same device operations, so XLA may trace it into a command buffer.
    COMMAND_BUFFER_COMPATIBLE = 1


class Buffer(NamedTuple):
    """An operand or result as XLA passes it.

    Attributes:
      address: where the execution has it, on the device; 0 for an empty one on some platforms.
      size: bytes of its elements.
      dtype: XLA's element type, lower case ("f32", "bf16", "pred").
      shape: dimensions.
    """

    address: int
    size: int
    dtype: str
    shape: tuple[int, ...]


class CallFrame:
    """One call of a handler; valid only until the handler returns.

    An operand and a result with the same address are one buffer: XLA aliased them, as it does where
    ``jax.ffi.ffi_call`` was given ``input_output_aliases``.
    """

    __slots__ = ("_abi", "_address", "_api", "_context")

    def __init__(self, address: int, abi: Abi) -> None:
        self._abi = abi
        self._address = address
        self._api = _pointer(address + abi.frame_api)
        self._context = _pointer(address + abi.frame_context)

    @property
    def stage(self) -> ExecutionStage:
        """When XLA calls."""
        return ExecutionStage(self._abi.stages[_int32(self._address + self._abi.frame_stage)])

    @property
    def arguments(self) -> tuple[Buffer, ...]:
        """The operands."""
        return self._buffers(self._address + self._abi.frame_arguments)

    @property
    def results(self) -> tuple[Buffer, ...]:
        """The results."""
        return self._buffers(self._address + self._abi.frame_results)

    @property
    def argument_addresses(self) -> list[int]:
        """Where the operands are, and nothing else of them; 0 for an empty one on some platforms."""
        return self._addresses(self._address + self._abi.frame_arguments)

    @property
    def result_addresses(self) -> list[int]:
        """Where the results are, and nothing else of them."""
        return self._addresses(self._address + self._abi.frame_results)

    def _addresses(self, sequence: int) -> list[int]:
        count = _int64(sequence + self._abi.sequence_size)
        if not count:
            return []
        buffers = (ctypes.c_uint64 * count).from_address(_pointer(sequence + self._abi.sequence_items))
        place, read = self._abi.buffer_data, ctypes.c_uint64.from_address
        return [read(buffer + place).value for buffer in buffers]

    def _buffers(self, sequence: int) -> tuple[Buffer, ...]:
        abi = self._abi
        count = _int64(sequence + abi.sequence_size)
        if not count:
            return ()
        addresses = (ctypes.c_uint64 * count).from_address(_pointer(sequence + abi.sequence_items))
        read, dtypes = abi.buffer.from_address, abi.dtypes
        buffers = []
        for address in addresses:
            buffer: Any = read(address)
            rank = buffer.rank
            shape = tuple((ctypes.c_int64 * rank).from_address(buffer.dims)) if rank else ()
            dtype = dtypes.get(buffer.dtype, "invalid")
            size = (prod(shape) * element_bits(dtype) + 7) // 8
            buffers.append(Buffer(buffer.data or 0, size, dtype, shape))
        return tuple(buffers)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes: str, bool, int, float, tuples of numbers, and mappings of these."""
        return self._abi.read_attributes(self._address + self._abi.frame_attributes)

    def attribute(self, name: str) -> Any:
        """One attribute, without reading the others.

        Raises:
          KeyError: there is none of that name.
        """
        return read_attribute(self._abi, self._address + self._abi.frame_attributes, name)

    @property
    def stream(self) -> int:
        """The platform's stream handle (``CUstream``); StatusError where the platform has none (CPU)."""
        return self._abi.get(self._api, self._context, "Stream_Get")

    @property
    def device_ordinal(self) -> int:
        """The local ordinal of the device that executes."""
        return self._abi.get(self._api, self._context, "DeviceOrdinal_Get")

    @property
    def run_id(self) -> int:
        """A number that the executions of one launch on several devices share."""
        return self._abi.get(self._api, self._context, "RunId_Get")


def _pointer(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _int64(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _int32(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


@dataclass(frozen=True)
class FfiHandler:
    """A function that XLA calls as custom call ``name`` on ``platform``.

    Attributes:
      name: the custom call's target.
      function: gets the :class:`CallFrame`; what it returns is ignored. It runs in whatever thread XLA
        executes in, for different devices at once, with the GIL. Raising StatusError keeps its code; any
        other exception becomes INTERNAL.
      platform: "cpu" or "CUDA", as ``jax.ffi.register_ffi_target`` takes it.
      traits: what XLA may do with it.
    """

    name: str
    function: Callable[[CallFrame], object]
    platform: str = "cpu"
    traits: HandlerTraits = HandlerTraits.NONE

    def register(self) -> None:
        """Makes XLA know the target, for the rest of the process; XLA has no way back.

        Touches no device: for a plugin that is not loaded yet JAX keeps the registration.

        Raises:
          MissingDependencyError: the installed jaxlib's FFI cannot be spoken.
          ValueError: another function has this name.
        """
        capsule = jax.ffi.pycapsule(self.entry)  # type: ignore[no-untyped-call]
        jax.ffi.register_ffi_target(self.name, {"execute": capsule}, platform=self.platform)

    @functools.cached_property
    def entry(self) -> int:
        """The address XLA calls, made at first use and never taken back."""
        return process_gate().entry(functools.partial(_enter, self, installed_abi()))


def _enter(handler: FfiHandler, abi: Abi, address: int, slot: int) -> None:
    with _ErrorsToXla(handler.name, abi, address, slot):
        if abi.answer_metadata(address, handler.traits):
            return
        handler.function(CallFrame(address, abi))


class _ErrorsToXla:
    """What is raised inside becomes the ``XLA_FFI_Error`` that the call returns: XLA is the outermost
    caller, so nothing may pass.
    """

    __slots__ = ("_abi", "_address", "_name", "_slot")

    def __init__(self, name: str, abi: Abi, address: int, slot: int) -> None:
        self._name, self._abi, self._address, self._slot = name, abi, address, slot

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            return True
        code, text = _as_status(error, trace)
        api = _pointer(self._address + self._abi.frame_api)
        status = self._abi.create_error(api, code, f"in custom call {self._name}: {text}")
        ctypes.c_uint64.from_address(self._slot).value = status
        return True


def _as_status(error: BaseException, trace: TracebackType | None) -> tuple[str, str]:
    """XLA's status code and the message: the exception's text and where it was raised."""
    if isinstance(error, StatusError):
        return error.code.name, error.message
    if isinstance(error, KeyboardInterrupt):
        return "CANCELLED", "interrupted from the keyboard"
    frames: Iterable[traceback.FrameSummary] = traceback.extract_tb(trace)
    where = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames][-1:]
    text = "".join(traceback.format_exception_only(error)).strip()
    return StatusCode.INTERNAL.name, f"{text}" + (f" ({where[0]})" if where else "")
