"""Writes jax_cmdbuf/executable/data/schema_additions.txtpb from the CUDA plugins of several jaxlib releases.

    python tools/make_schema_additions.py <xla_cuda_plugin.so of a release, newest first>... > additions.txtpb

Kept are the messages, fields and enum values that are in some of the releases but not in all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, text_format

from jax_cmdbuf.executable.descriptors import ROOTS, read_files

_File = descriptor_pb2.FileDescriptorProto


def main(binaries: list[str]) -> int:
    releases = [_types(read_files([Path(binary)], ROOTS)) for binary in binaries]
    fragments: dict[str, _File] = {}
    for full_name in sorted({name for types in releases for name in types}):
        versions = [types[full_name] for types in releases if full_name in types]
        file, newest = versions[0]
        differ = _message if isinstance(newest, descriptor_pb2.DescriptorProto) else _enum
        part = differ([one for _, one in versions], len(versions) == len(releases))
        if part is not None:
            fragment = fragments.setdefault(
                file.name, _File(name=file.name, package=file.package, syntax=file.syntax)
            )
            kind = "message_type" if differ is _message else "enum_type"
            getattr(fragment, kind).append(part)
    result = descriptor_pb2.FileDescriptorSet(file=[fragments[name] for name in sorted(fragments)])
    sys.stdout.write(text_format.MessageToString(result))
    return 0


def _types(files: dict[str, _File]) -> dict[str, tuple[_File, Any]]:
    """Full name of each top-level message and enum -> (its file, itself)."""
    return {
        f"{file.package}.{one.name}": (file, one)
        for file in files.values()
        for one in (*file.message_type, *file.enum_type)
    }


def _nested(target: Any, versions: list[Any], everywhere: bool) -> None:
    """Adds to a message the differing messages and enums declared in it."""
    for kind, differ in (("nested_type", _message), ("enum_type", _enum)):
        found: dict[str, list[Any]] = {}
        for version in versions:
            for one in getattr(version, kind):
                found.setdefault(one.name, []).append(one)
        for ones in found.values():
            part = differ(ones, everywhere and len(ones) == len(versions))
            if part is not None:
                getattr(target, kind).append(part)


def _message(versions: list[Any], everywhere: bool) -> Any:
    part = descriptor_pb2.DescriptorProto(name=versions[0].name)
    if versions[0].options.map_entry:
        part.options.map_entry = True
    _nested(part, versions, everywhere)
    for message in versions:
        for field in message.field:
            common = everywhere and all(any(_same(field, one) for one in other.field) for other in versions)
            if common or any(_same(field, one) for one in part.field):
                continue
            if any(one.number == field.number or one.name == field.name for one in part.field):
                print(f"conflict: {message.name}.{field.name}", file=sys.stderr)
                continue
            new = part.field.add()
            new.CopyFrom(field)
            new.ClearField("options")
            new.ClearField("json_name")
            if field.HasField("oneof_index"):
                name = message.oneof_decl[field.oneof_index].name
                names = [one.name for one in part.oneof_decl]
                if name not in names:
                    part.oneof_decl.add(name=name)
                    names.append(name)
                new.oneof_index = names.index(name)
    has_content = part.field or part.nested_type or part.enum_type
    return part if has_content or not everywhere else None


def _enum(versions: list[Any], everywhere: bool) -> Any:
    part = descriptor_pb2.EnumDescriptorProto(name=versions[0].name)
    for enum in versions:
        for value in enum.value:
            common = everywhere and all(
                any((one.name, one.number) == (value.name, value.number) for one in other.value)
                for other in versions
            )
            taken = any(one.name == value.name or one.number == value.number for one in part.value)
            if not common and not taken:
                part.value.add(name=value.name, number=value.number)
    return part if part.value else None


def _same(one: Any, other: Any) -> bool:
    return bool(
        (one.name, one.number, one.type, one.label) == (other.name, other.number, other.type, other.label)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
