"""Adds to an installed schema what other releases of jaxlib have, so that one process reads them all.

XLA's protos grow and shrink between releases but do not reuse a number for something else (checked for
0.10.2, 0.11.2 and 0.12.0.1; the one renumbered enum is in ``decode.py``). The additions are generated from
the binaries of those releases by ``tools/make_schema_additions.py``. Invariant: what the installed binaries
define always wins; an addition whose name or number is taken, or whose type is unknown, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, text_format

__all__ = ["ADDITIONS", "add_missing", "additions"]

ADDITIONS = "schema_additions.txtpb"

_File = descriptor_pb2.FileDescriptorProto


@lru_cache(maxsize=1)
def additions() -> tuple[_File, ...]:
    """Fragments of .proto files: the messages, fields and enum values that not every known release has."""
    text = (files("jax_cmdbuf.executable") / "data" / ADDITIONS).read_text()
    return tuple(text_format.Parse(text, descriptor_pb2.FileDescriptorSet()).file)


def add_missing(installed: Mapping[str, _File], fragments: Iterable[_File]) -> dict[str, _File]:
    """The installed files with the fragments merged in.

    A type is found by its full name, since releases move types between files.

    Args:
      installed: file name -> descriptor, complete (every import is there); not changed.
      fragments: files, or parts of files.
    """
    merged = {name: _copy(file) for name, file in installed.items()}
    known = _types(merged.values())
    for fragment in fragments:
        for message in fragment.message_type:
            home = known.get(f"{fragment.package}.{message.name}")
            if home is not None:
                _merge_types(home.message_type, home.enum_type, [message], [])
            else:
                _file_like(merged, fragment).message_type.append(message)
        for enum in fragment.enum_type:
            home = known.get(f"{fragment.package}.{enum.name}")
            if home is not None:
                _merge_types(home.message_type, home.enum_type, [], [enum])
            else:
                _file_like(merged, fragment).enum_type.append(enum)
    _import_what_is_used(merged)
    return merged


def _types(files: Iterable[_File]) -> dict[str, _File]:
    """Full name of each top-level message and enum -> its file."""
    homes: dict[str, _File] = {}
    for file in files:
        homes.update({f"{file.package}.{message.name}": file for message in file.message_type})
        homes.update({f"{file.package}.{enum.name}": file for enum in file.enum_type})
    return homes


def _file_like(merged: dict[str, _File], fragment: _File) -> _File:
    if fragment.name not in merged:
        merged[fragment.name] = _File(name=fragment.name, package=fragment.package, syntax=fragment.syntax)
    return merged[fragment.name]


def _copy(message: _File) -> _File:
    twin = _File()
    twin.CopyFrom(message)
    return twin


def _import_what_is_used(files: Mapping[str, _File]) -> None:
    homes = _types(files.values())
    for file in files.values():
        for used in _used_types(file.message_type):
            # ".xla.gpu.Outer.Inner": the longest known prefix is the top-level type.
            parts = used.removeprefix(".").split(".")
            prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
            home = next((homes[prefix] for prefix in prefixes if prefix in homes), file)
            if home is not file and home.name not in file.dependency:
                file.dependency.append(home.name)


def _used_types(messages: Any) -> Iterator[str]:
    for message in messages:
        yield from (field.type_name for field in message.field if field.type_name)
        yield from _used_types(message.nested_type)


def _merge_types(messages: Any, enums: Any, new_messages: Any, new_enums: Any) -> None:
    """Merges messages and enums of one scope (a file, or a message's nested types)."""
    known_messages = {message.name: message for message in messages}
    known_enums = {enum.name: enum for enum in enums}
    for new in new_messages:
        if new.name not in known_messages and new.name not in known_enums:
            messages.append(new)
        elif new.name in known_messages:
            _merge_message(known_messages[new.name], new)
    for new in new_enums:
        if new.name not in known_enums and new.name not in known_messages:
            enums.append(new)
        elif new.name in known_enums:
            _merge_enum(known_enums[new.name], new)


def _merge_enum(enum: Any, new: Any) -> None:
    names = {value.name for value in enum.value}
    numbers = {value.number for value in enum.value}
    reserved = enum.reserved_range
    for value in new.value:
        if value.name not in names and value.number not in numbers:
            enum.value.append(value)
    del reserved[:]
    del enum.reserved_name[:]


def _merge_message(message: Any, new: Any) -> None:
    _merge_types(message.nested_type, message.enum_type, new.nested_type, new.enum_type)
    names = {field.name for field in message.field}
    numbers = {field.number for field in message.field}
    oneofs = {field.name: _oneof(message, field) for field in message.field}
    for field in new.field:
        if field.name not in names and field.number not in numbers:
            message.field.append(field)
            oneofs[field.name] = _oneof(new, field)
    # A dropped field's number is reserved in later releases.
    del message.reserved_range[:]
    del message.reserved_name[:]
    _renumber_oneofs(message, oneofs)


def _oneof(message: Any, field: Any) -> str | None:
    return message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None


def _renumber_oneofs(message: Any, oneofs: dict[str, str | None]) -> None:
    """Declares the oneofs anew: those of proto3's ``optional`` must come after all others."""
    optional = {field.name for field in message.field if field.proto3_optional}
    names = dict.fromkeys(one for field, one in oneofs.items() if one is not None and field not in optional)
    names |= dict.fromkeys(one for field, one in oneofs.items() if one is not None and field in optional)
    numbers = {name: number for number, name in enumerate(names)}
    del message.oneof_decl[:]
    for name in names:
        message.oneof_decl.add(name=name)
    for field in message.field:
        one = oneofs[field.name]
        if one is not None:
            field.oneof_index = numbers[one]
