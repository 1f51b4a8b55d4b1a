"""Protobuf descriptors inside a compiled library, and messages read by them, with the standard library only.

Every generated C++ file embeds its FileDescriptorProto; the field numbers below are those of
google/protobuf/descriptor.proto. Invariant: reading never trusts a length; what does not fit is a
`CatalogError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from xla_flags.errors import CatalogError

# FieldDescriptorProto.Type of the types that DebugOptions has.
TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    8: "bool",
    9: "string",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
}
_REPEATED = 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Bytes(Protocol):
    """What is asked of a library's content; `bytes` and `mmap.mmap` have it."""

    def find(self, sub: bytes, start: int = ..., /) -> int:
        """Where `sub` first stands; -1: nowhere."""
        ...

    def __getitem__(self, key: slice, /) -> bytes: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a message.

    Attributes:
      name, number: of the field.
      type: the proto type's word.
      repeated: whether it holds many; true of maps too.
      type_name: full name of the enum or message that `type` stands for; "" for other types.
      optional: whether absent differs from the default, as proto3's `optional` has it.
    """

    name: str
    number: int
    type: str
    repeated: bool
    type_name: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message; `map_entry` marks the hidden message that a map is made of."""

    name: str
    fields: dict[int, FieldType]
    map_entry: bool


@dataclass(slots=True)
class Types:
    """All messages and enums of some files, by full name without a leading dot."""

    messages: dict[str, MessageType] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)


def read_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of a message's fields; value is an int, or bytes if length-delimited.

    Raises:
      CatalogError: these bytes are no message.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == _VARINT:
            value, position = _varint(data, position)
        elif wire == _BYTES:
            length, start = _varint(data, position)
            position = start + length
            value = data[start:position]
        elif wire in (_FIXED64, _FIXED32):
            start, position = position, position + (8 if wire == _FIXED64 else 4)
            value = int.from_bytes(data[start:position], "little")
        else:
            raise CatalogError(f"wire type {wire} at byte {position}")
        if position > len(data) or not number:
            raise CatalogError(f"a field does not fit at byte {position}")
        yield number, wire, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise CatalogError(f"a number does not end at byte {position}")


def embedded_file(library: Bytes, name: str) -> bytes:
    """The FileDescriptorProto of a .proto file that was compiled into a library.

    Args:
      library: content of the shared object.
      name: as imported, such as `xla/xla.proto`.

    Raises:
      CatalogError: it is not there.
    """
    encoded = name.encode()
    # A descriptor begins with its own name, and the package comes next; no other string looks like that.
    start = library.find(b"\x0a" + bytes([len(encoded)]) + encoded + b"\x12")
    if start < 0:
        raise CatalogError(f"no descriptor of {name} in this library")
    return library[start : start + _length(library, start)]


def _length(library: Bytes, start: int) -> int:
    """How long the FileDescriptorProto at `start` is: up to what cannot be one of its fields."""
    position = start
    while True:
        head = library[position : position + 16]
        # Its fields 1 to 14 all have one-byte tags; the array ends in NUL or runs into other data.
        if not head or not 1 <= head[0] >> 3 <= 14:
            break
        try:
            wire = head[0] & 7
            size, used = _varint(head, 1)
        except CatalogError:
            break
        if wire == _VARINT:
            position += used
        elif wire == _BYTES and position + used + size <= len(library):
            position += used + size
        else:
            break
    return position - start


def read_file(data: bytes, into: Types) -> None:
    """Adds the messages and enums of a FileDescriptorProto."""
    package, messages, enums = "", [], []
    for number, _, value in read_fields(data):
        if number == 2:
            package = value.decode()
        elif number == 4:
            messages.append(value)
        elif number == 5:
            enums.append(value)
    for message in messages:
        _read_message(message, package, into)
    for each in enums:
        _read_enum(each, package, into)


def _read_message(data: bytes, scope: str, into: Types) -> None:
    parts = list(read_fields(data))
    name = f"{scope}.{_text(parts, 1)}"
    fields, map_entry = {}, False
    for number, _, value in parts:
        if number == 2:
            each = _read_field(value)
            fields[each.number] = each
        elif number == 3:
            _read_message(value, name, into)
        elif number == 4:
            _read_enum(value, name, into)
        elif number == 7:
            map_entry = any(option == 7 and flag for option, _, flag in read_fields(value))
    into.messages[name] = MessageType(name, fields, map_entry)


def _read_field(data: bytes) -> FieldType:
    parts = {number: value for number, _, value in read_fields(data)}
    return FieldType(
        name=parts[1].decode(),
        number=parts[3],
        type=TYPES.get(parts.get(5, 0), "unknown"),
        repeated=parts.get(4) == _REPEATED,
        type_name=parts.get(6, b"").decode().removeprefix("."),
        optional=bool(parts.get(17)),
    )


def _read_enum(data: bytes, scope: str, into: Types) -> None:
    parts = list(read_fields(data))
    members = {}
    for number, _, value in parts:
        if number == 2:
            member = {key: each for key, _, each in read_fields(value)}
            members[member[1].decode()] = _signed(member.get(2, 0))
    into.enums[f"{scope}.{_text(parts, 1)}"] = members


def _text(parts: list[tuple[int, int, Any]], number: int) -> str:
    return next(str(value, "utf-8") for key, _, value in parts if key == number)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def decode(data: bytes, message: MessageType, types: Types) -> dict[str, Any]:
    """A message in JSON's form: enums by name (unknown numbers as ints), maps and messages as dicts.

    Fields that are absent stay absent; repeated ones are lists, maps dicts.

    Raises:
      CatalogError: these bytes are no such message, or a string is not UTF-8.
    """
    result: dict[str, Any] = {}
    for number, wire, value in read_fields(data):
        spec = message.fields.get(number)
        if spec is None:
            continue
        if spec.repeated and wire == _BYTES and spec.type not in ("string", "bytes", "message"):
            result.setdefault(spec.name, []).extend(_packed(value, spec, types))
            continue
        decoded = _scalar(value, spec, types)
        nested = types.messages.get(spec.type_name)
        if nested is not None and nested.map_entry:
            result.setdefault(spec.name, {})[decoded.get("key", "")] = decoded.get("value", "")
        elif spec.repeated:
            result.setdefault(spec.name, []).append(decoded)
        else:
            result[spec.name] = decoded
    return result


def _packed(data: bytes, spec: FieldType, types: Types) -> Iterator[Any]:
    position = 0
    size = {"float": 4, "double": 8}.get(spec.type)
    while position < len(data):
        if size is None:
            value, position = _varint(data, position)
        else:
            value = int.from_bytes(data[position : position + size], "little")
            position += size
        yield _scalar(value, spec, types)


def _scalar(value: Any, spec: FieldType, types: Types) -> Any:
    match spec.type:
        case "bool":
            return bool(value)
        case "int32" | "int64":
            return _signed(value)
        case "float":
            return struct.unpack("<f", value.to_bytes(4, "little"))[0]
        case "double":
            return struct.unpack("<d", value.to_bytes(8, "little"))[0]
        case "string":
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise CatalogError(f"{spec.name} is not UTF-8") from error
        case "enum":
            names = {number: name for name, number in reversed(types.enums[spec.type_name].items())}
            return names.get(_signed(value), _signed(value))
        case "message":
            return decode(value, types.messages[spec.type_name], types)
    return value
