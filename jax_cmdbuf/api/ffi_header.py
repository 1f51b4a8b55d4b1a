"""XLA's FFI header (``xla/ffi/api/c_api.h``) -> version, structure layouts and enums, as ctypes sees them.

The header ships with jaxlib, so the layouts are those of the library that will call us. Invariant: no field
offset, enum number or version is written down in this package; what the header lacks is an error that names
it, never a wrong read.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from jax_cmdbuf.errors import MissingDependencyError

__all__ = ["HEADER", "FfiHeader", "installed_header", "parse_header"]

HEADER = Path("xla", "ffi", "api", "c_api.h")

_SCALARS: dict[str, type[ctypes._SimpleCData[int]]] = {
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VERSION = re.compile(r"^#define XLA_FFI_API_(MAJOR|MINOR) (\d+)$", re.MULTILINE)
_ENUM = re.compile(r"typedef enum \{([^}]*)\} (\w+);")
_ENUM_ENTRY = re.compile(r"(\w+)\s*=\s*(\d+)\s*,?")
_STRUCT = re.compile(r"struct (\w+) \{([^}]*)\}")
_ALIAS = re.compile(r"typedef (u?int\d+_t) (\w+);")
_API_ENTRY = re.compile(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)")
_FUNCTION_POINTER = re.compile(r"\(\*(\w+)\)")
_FIELD = re.compile(r"(?:const\s+)?(?:struct\s+)?(\w+)\s*(\**)\s*(\w+)")


class FfiHeader(NamedTuple):
    """What one header declares.

    Attributes:
      major, minor: ``XLA_FFI_API_MAJOR`` and ``XLA_FFI_API_MINOR``.
      structs: name without the ``XLA_FFI_`` prefix -> layout; pointers are addresses (``c_void_p``).
      enums: name without the prefix -> member -> number, members without the enum's prefix.
    """

    major: int
    minor: int
    structs: Mapping[str, type[ctypes.Structure]]
    enums: Mapping[str, Mapping[str, int]]

    def struct(self, name: str) -> type[ctypes.Structure]:
        """The layout of ``XLA_FFI_<name>``.

        Raises:
          MissingDependencyError: the header declares no such structure.
        """
        if name not in self.structs:
            raise self._lacks(f"struct XLA_FFI_{name}")
        return self.structs[name]

    def offset(self, name: str, *fields: str) -> int:
        """Bytes from the start of ``XLA_FFI_<name>`` to the first of ``fields`` that it has.

        Several names are the spellings of one field in different releases.

        Raises:
          MissingDependencyError: it has none of them.
        """
        struct = self.struct(name)
        for field in fields:
            if hasattr(struct, field):
                offset: int = getattr(struct, field).offset
                return offset
        raise self._lacks(f"{' or '.join(fields)} in XLA_FFI_{name}")

    def enum(self, name: str) -> Mapping[str, int]:
        """The members of ``XLA_FFI_<name>``.

        Raises:
          MissingDependencyError: the header declares no such enum.
        """
        if name not in self.enums:
            raise self._lacks(f"enum XLA_FFI_{name}")
        return self.enums[name]

    def _lacks(self, what: str) -> MissingDependencyError:
        return MissingDependencyError(
            f"XLA's FFI header of version {self.major}.{self.minor} declares no {what}, which the buffer "
            "hook needs (known to work: jaxlib 0.10.2 to 0.12)"
        )


def parse_header(text: str) -> FfiHeader:
    """Reads the header's text.

    Raises:
      MissingDependencyError: it is not XLA's FFI header.
    """
    version = {name: int(number) for name, number in _VERSION.findall(text)}
    text = _COMMENT.sub("", text)
    if version.keys() != {"MAJOR", "MINOR"}:
        raise MissingDependencyError("the file is not XLA's FFI header: it defines no XLA_FFI_API version")
    enums: dict[str, Mapping[str, int]] = {}
    types: dict[str, type[ctypes._SimpleCData[int]] | type[ctypes.Structure]] = dict(_SCALARS)
    for body, name in _ENUM.findall(text):
        enums[_short(name)] = {
            member.removeprefix(_enum_prefix(name)): int(number)
            for member, number in _ENUM_ENTRY.findall(body)
        }
        types[name] = ctypes.c_int
    types |= {alias: _SCALARS[scalar] for scalar, alias in _ALIAS.findall(text)}
    structs: dict[str, type[ctypes.Structure]] = {}
    for name, body in _STRUCT.findall(text):
        fields = [_field(line, types) for line in body.split(";") if line.strip()]
        # A structure with a field of a type unknown here is left out; asking for it then says so.
        if all(field is not None for field in fields):
            struct = type(name, (ctypes.Structure,), {"_fields_": fields})
            structs[_short(name)] = types[name] = struct
    return FfiHeader(version["MAJOR"], version["MINOR"], structs, enums)


def _field(
    declaration: str, types: Mapping[str, type[ctypes._SimpleCData[int]] | type[ctypes.Structure]]
) -> tuple[str, type] | None:
    if match := _API_ENTRY.search(declaration) or _FUNCTION_POINTER.search(declaration):
        return _short(match[1]), ctypes.c_void_p
    match = _FIELD.fullmatch(declaration.strip())
    if match is None:
        return None
    name, stars, field = match.groups()
    if stars:
        return field, ctypes.c_void_p
    return (field, types[name]) if name in types else None


def _short(name: str) -> str:
    return name.removeprefix("XLA_FFI_")


def _enum_prefix(name: str) -> str:
    # The extension enum was renamed in 0.12; its member kept the old prefix.
    return name.replace("InternalExtension_Type", "Extension").removesuffix("_Type") + "_"


@functools.cache
def installed_header() -> FfiHeader:
    """The header of the installed jaxlib, read once.

    Raises:
      MissingDependencyError: jaxlib ships no such header, or one that cannot be read.
    """
    path = Path(jax.ffi.include_dir()) / HEADER
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MissingDependencyError(
            f"jaxlib's FFI header cannot be read ({error}); reinstall it: "
            "pip install --force-reinstall jaxlib"
        ) from None
    return parse_header(text)
