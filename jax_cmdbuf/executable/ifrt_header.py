"""The header that IFRT puts before a serialized executable, and its agreement with the program behind it.

Mirrors ``xla/python/pjrt_ifrt/executable_metadata.proto``. No checksum covers the header, but nearly all it
says is said again by the program. Invariant: only contradictions in facts that both state are errors; a field
that is missing, or a header of another version, is not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.wire import read_fields, read_varint

__all__ = ["RUNTIME", "IfrtHeader", "check_header", "split_header"]

RUNTIME = b"pjrt_ifrt"
_VERSION = 3
_MEMORY_KINDS = {b"device", b"pinned_host", b"unpinned_host"}
_LAYOUT_TYPE = b"xla::ifrt::PjRtLayout"
_ABI_TYPE = b"xla::GpuXlaExecutableAbiVersion"
# Element types that have the same number in IFRT's DTypeProto and XLA's PrimitiveType.
_SAME_NUMBERS = {*range(1, 13), *range(14, 30)}

_Value = int | bytes


@dataclass(frozen=True)
class IfrtHeader:
    """The fields of ``SerializedXlaExecutableMetadata`` that are used, still serialized where they are
    messages.

    Attributes:
      version: of the format; 3 in jaxlib 0.10 to 0.12.
      module_name: the program's name.
      outputs, parameters: one ``OutputSpec`` or ``ParameterSpec`` per result or parameter.
      abi: ``SerializedXlaExecutableVersion``.
    """

    version: int
    module_name: bytes
    outputs: tuple[bytes, ...]
    parameters: tuple[bytes, ...]
    abi: bytes


def split_header(data: bytes) -> tuple[IfrtHeader, bytes]:
    """(header, what follows it).

    Raises:
      ContainerError: the data does not begin with such a header.
    """
    size, at = read_varint(data, 0)
    if size == 0 or size > len(data) - at:
        raise ContainerError("it does not begin with an IFRT header")
    fields = list(read_fields(data[at : at + size]))
    if _first(fields, 2) != RUNTIME:
        raise ContainerError("its IFRT header does not name the pjrt_ifrt runtime")
    version = _first(fields, 1)
    header = IfrtHeader(
        version=version if isinstance(version, int) else 0,
        module_name=_bytes(_first(fields, 7)),
        outputs=tuple(_bytes(value) for number, value in fields if number == 5),
        parameters=tuple(_bytes(value) for number, value in fields if number == 6),
        abi=_bytes(_first(fields, 9)),
    )
    return header, data[at + size :]


def check_header(header: IfrtHeader, executable: Any) -> None:
    """Compares the header with the ``GpuExecutableProto`` that followed it.

    Raises:
      ContainerError: they contradict each other.
    """
    module = executable.hlo_module_with_config
    if header.module_name and header.module_name != module.hlo_module.name.encode():
        raise _contradiction("the module's name")
    if header.version != _VERSION:
        return
    shape = executable.program_shape
    results = [shape.result] if not shape.result.tuple_shapes else list(shape.result.tuple_shapes)
    if header.outputs and shape.result.ByteSize():
        if len(header.outputs) != len(results):
            raise _contradiction("the number of results")
        for output, result in zip(header.outputs, results, strict=True):
            _check_output(dict(read_fields(output)), result, module.config.num_partitions <= 1)
    if header.parameters:
        if len(header.parameters) != len(shape.parameters):
            raise _contradiction("the number of parameters")
        for parameter, expected in zip(header.parameters, shape.parameters, strict=True):
            _check_layout(parameter, expected.layout)
    _check_abi(header.abi, executable.executable_abi_version)


def _contradiction(what: str) -> ContainerError:
    return ContainerError(f"its header and its program disagree about {what}")


def _first(fields: Iterable[tuple[int, _Value]], wanted: int) -> _Value | None:
    return next((value for number, value in fields if number == wanted), None)


def _bytes(value: _Value | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def _inner(message: bytes, *path: int) -> _Value | None:
    """A field of a field of a message, or None."""
    value: _Value | None = message
    for number in path:
        value = _first(read_fields(value), number) if isinstance(value, bytes) else None
    return value


def _dimensions(shape: _Value | None) -> list[int]:
    """The sizes in an IFRT ``ShapeProto``."""
    packed = _bytes(_inner(_bytes(shape), 1))
    sizes, at = [], 0
    while at < len(packed):
        size, at = read_varint(packed, at)
        sizes.append(size)
    return sizes


def _check_output(output: dict[int, _Value], result: Any, is_whole: bool) -> None:
    # Shapes on one device (1) and of the whole array (6), the program's own being that of one device.
    for stated in (_dimensions(output[number]) for number in (1, 6) if number in output):
        if len(stated) != len(result.dimensions) or (is_whole and stated != list(result.dimensions)):
            raise _contradiction("the shape of a result")
    element = _inner(_bytes(output.get(2)), 1)
    comparable = isinstance(element, int) and {element, result.element_type} <= _SAME_NUMBERS
    if comparable and element != result.element_type:
        raise _contradiction("the type of a result")
    if 4 in output and output[4] not in _MEMORY_KINDS:
        raise _contradiction("the memory of a result")


def _check_layout(parameter: bytes, expected: Any) -> None:
    serialized = _inner(parameter, 1, 1)
    if serialized is None:
        return
    fields = dict(read_fields(_bytes(serialized)))
    if fields.get(1) != _LAYOUT_TYPE:
        raise _contradiction("the kind of a layout")
    layout = _inner(_bytes(fields.get(2)), 1)
    if isinstance(layout, bytes) and layout != expected.SerializeToString(deterministic=True):
        raise _contradiction("the layout of a parameter")


def _check_abi(version: bytes, expected: Any) -> None:
    fields = dict(read_fields(version))
    if 3 not in fields:
        return
    wrapped = dict(read_fields(_bytes(fields[3])))
    content = dict(read_fields(_bytes(wrapped.get(2))))
    fingerprint = _bytes(fields.get(2))
    if wrapped.get(1) != _ABI_TYPE or fingerprint != struct.pack("<Q", _int(content.get(1))):
        raise _contradiction("the version of the compiler")
    stated = _bytes(content.get(2))
    if expected.ByteSize() and stated != expected.SerializeToString(deterministic=True):
        raise _contradiction("the versions of the CUDA libraries")


def _int(value: _Value | None) -> int:
    return value if isinstance(value, int) else 0
