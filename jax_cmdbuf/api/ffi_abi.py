"""Reading and answering XLA's FFI calls with the layouts of the installed header.

Mirrors what ``xla/ffi/api/ffi.h`` does for C++ handlers: the metadata query, attributes, the API table's
functions and its errors. Invariant: an entry of the API table is used only if the caller's table is long
enough to have it, so a plugin older than the header is an error, never a call through a wild pointer.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from typing import Any

from jax_cmdbuf.api.ffi_header import FfiHeader, installed_header
from jax_cmdbuf.errors import StatusCode, StatusError

__all__ = ["Abi", "element_bits", "installed_abi", "read_attribute"]

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_NAMED_SIZE = re.compile(r"[a-z]+(\d+)")
# XLA's element type -> code of the struct module; what has no code is given as bytes.
_SCALAR_CODES = {
    "pred": "?",
    "s8": "b",
    "s16": "h",
    "s32": "i",
    "s64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}


@functools.cache
def element_bits(dtype: str) -> int:
    """Bits of one element of an XLA element type; 0 for tokens and what is not an array."""
    if dtype == "pred":
        return 8
    match = _NAMED_SIZE.match(dtype)
    return int(match[1]) if match else 0


class Abi:
    """The header's layouts, looked up once.

    Attributes:
      header: where they come from.
      buffer: layout of ``XLA_FFI_Buffer``.
      buffer_data: offset of its address.
      dtypes, stages: number -> name.
      frame_*: offsets in ``XLA_FFI_CallFrame``.
      sequence_size, sequence_items: offsets in ``XLA_FFI_Args``, which ``XLA_FFI_Rets`` shares.
    """

    def __init__(self, header: FfiHeader) -> None:
        self.header = header
        offset = header.offset
        self.buffer: Any = header.struct("Buffer")
        self.buffer_data = offset("Buffer", "data")
        self.dtypes = {number: name.lower() for name, number in header.enum("DataType").items()}
        self.stages = {number: name for name, number in header.enum("ExecutionStage").items()}
        self.frame_extension = offset("CallFrame", "extension_start")
        self.frame_api = offset("CallFrame", "api")
        self.frame_context = offset("CallFrame", "ctx")
        self.frame_stage = offset("CallFrame", "stage")
        self.frame_arguments = offset("CallFrame", "args")
        self.frame_results = offset("CallFrame", "rets")
        self.frame_attributes = offset("CallFrame", "attrs")
        self.sequence_size = offset("Args", "size")
        self.sequence_items = offset("Args", "args")
        assert (self.sequence_size, self.sequence_items) == (offset("Rets", "size"), offset("Rets", "rets"))
        self._metadata_type = header.enum(
            "InternalExtension_Type" if "InternalExtension_Type" in header.enums else "Extension_Type"
        )["Metadata"]
        self._attribute_types = {number: name for name, number in header.enum("AttrType").items()}
        self._error_codes = header.enum("Error_Code")
        self._statuses = {number: name for name, number in self._error_codes.items()}
        # 0.10 and 0.11 call it GetMessage; the structure only grew, and the longer one serves both.
        self._details = next(
            name for name in ("Error_GetDetails", "Error_GetMessage") if name + "_Args" in header.structs
        )
        self._layouts: dict[str, Any] = {
            name: header.struct(name + "_Args")
            for name in (
                *("Stream_Get", "DeviceOrdinal_Get", "RunId_Get"),
                *("Error_Create", "Error_Destroy", self._details),
            )
        }
        self._results = {"Stream_Get": "stream", "DeviceOrdinal_Get": "device_ordinal", "RunId_Get": "run_id"}

    def answer_metadata(self, frame: int, traits: int) -> bool:
        """Answers XLA's question about version and traits, if this call is that question."""
        extension = _pointer(frame + self.frame_extension)
        layout: Any = self.header.struct(
            "InternalExtension" if "InternalExtension" in self.header.structs else "Extension_Base"
        )
        while extension:
            found = layout.from_address(extension)
            if found.type == self._metadata_type:
                question: Any = self.header.struct("Metadata_Extension").from_address(extension)
                answer: Any = self.header.struct("Metadata").from_address(question.metadata)
                answer.api_version.major_version = self.header.major
                answer.api_version.minor_version = self.header.minor
                answer.traits = traits
                return True
            extension = found.next or 0
        return False

    def get(self, api: int, context: int, name: str) -> int:
        """Calls one of the table's getters.

        Args:
          api: address of the caller's ``XLA_FFI_Api``.
          context: the call's context.
          name: "Stream_Get", "DeviceOrdinal_Get" or "RunId_Get".

        Raises:
          StatusError: XLA's error, or UNIMPLEMENTED where the caller's table has no such function.
        """
        arguments = self._arguments(name)
        arguments.ctx = context
        error = self._function(api, name)(ctypes.addressof(arguments))
        if error:
            raise self._take_error(api, error, name)
        return int(getattr(arguments, self._results[name]) or 0)

    def create_error(self, api: int, code: str, message: str) -> int:
        """An ``XLA_FFI_Error`` for the handler to return; its owner is XLA.

        Args:
          api: address of the caller's ``XLA_FFI_Api``.
          code: name of the status code.
          message: its text; cut at a NUL, as C is.
        """
        arguments = self._arguments("Error_Create")
        text = ctypes.create_string_buffer(message.encode(errors="replace").split(b"\0")[0])
        arguments.message = ctypes.addressof(text)
        arguments.errc = self._error_codes[code]
        return self._function(api, "Error_Create")(ctypes.addressof(arguments)) or 0

    def _arguments(self, name: str) -> Any:
        layout = self._layouts[name]
        arguments = layout()
        arguments.struct_size = ctypes.sizeof(layout)
        return arguments

    def _function(self, api: int, name: str) -> Any:
        place = self.header.offset("Api", name)
        if place >= ctypes.c_size_t.from_address(api).value:
            raise StatusError(
                StatusCode.UNIMPLEMENTED, f"the running XLA is older than jaxlib's header: it has no {name}"
            )
        return _FUNCTION(_pointer(api + place))

    def _take_error(self, api: int, error: int, what: str) -> StatusError:
        details = self._arguments(self._details)
        details.error = error
        self._function(api, self._details)(ctypes.addressof(details))
        message = ctypes.string_at(details.message).decode(errors="replace") if details.message else ""
        destroy = self._arguments("Error_Destroy")
        destroy.error = error
        self._function(api, "Error_Destroy")(ctypes.addressof(destroy))
        # Up to 0.11 the caller is not told the code; all that these functions refuse is what does not exist.
        number = getattr(details, "errc", self._error_codes["UNIMPLEMENTED"])
        name = self._statuses.get(number, "")
        code = StatusCode[name] if name in StatusCode.__members__ else StatusCode.INTERNAL
        return StatusError(code, f"{what}: {message}")

    def read_attributes(self, attributes: int) -> dict[str, Any]:
        """All of an ``XLA_FFI_Attrs``."""
        return {name: self._value(kind, value) for name, kind, value in self._entries(attributes)}

    def _entries(self, attributes: int) -> list[tuple[str, int, int]]:
        found: Any = self.header.struct("Attrs").from_address(attributes)
        count = found.size
        if not count:
            return []
        kinds = (ctypes.c_int * count).from_address(found.types)
        names = (ctypes.c_uint64 * count).from_address(found.names)
        values = (ctypes.c_uint64 * count).from_address(found.attrs)
        return [
            (self._text(name).decode(), kind, value)
            for name, kind, value in zip(names, kinds, values, strict=True)
        ]

    def _text(self, span: int) -> bytes:
        found: Any = self.header.struct("ByteSpan").from_address(span)
        return ctypes.string_at(found.ptr, found.len) if found.len else b""

    def _value(self, kind: int, address: int) -> Any:
        match self._attribute_types.get(kind):
            case "STRING":
                return self._text(address).decode(errors="surrogateescape")
            case "DICTIONARY":
                return self.read_attributes(address)
            case "SCALAR":
                scalar: Any = self.header.struct("Scalar").from_address(address)
                return self._numbers(scalar.dtype, scalar.value, 1)[0]
            case "ARRAY":
                array: Any = self.header.struct("Array").from_address(address)
                return self._numbers(array.dtype, array.data, array.size)
        raise StatusError(StatusCode.UNIMPLEMENTED, f"an attribute of the unknown kind {kind}")

    def _numbers(self, dtype: int, address: int, count: int) -> tuple[Any, ...]:
        name = self.dtypes.get(dtype, "invalid")
        width = element_bits(name) // 8
        data = ctypes.string_at(address, width * count) if count else b""
        if name in _SCALAR_CODES:
            return struct.unpack(f"={count}{_SCALAR_CODES[name]}", data)
        return tuple(data[i : i + width] for i in range(0, len(data), width or 1))


def read_attribute(abi: Abi, attributes: int, name: str) -> Any:
    """One attribute of an ``XLA_FFI_Attrs``; KeyError where it has none of that name."""
    for found, kind, value in abi._entries(attributes):
        if found == name:
            return abi._value(kind, value)
    raise KeyError(name)


def _pointer(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


@functools.cache
def installed_abi() -> Abi:
    """The layouts of the installed jaxlib.

    Raises:
      MissingDependencyError: it has no header, or one that lacks what a handler needs.
    """
    return Abi(installed_header())
