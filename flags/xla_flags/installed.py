"""The catalog of the jaxlib that is installed, found without importing it or starting a process.

Where its version has a shipped catalog that is the answer. Otherwise its embedded descriptors say which
fields there are, its strings say which flags there are, and the nearest shipped catalog says what neither
does: defaults, and how special flags read. Invariant: a derived catalog is never `exact`, and what it took
on trust is `presumed`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import mmap
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xla_flags.descriptors import Types, embedded_file, read_file
from xla_flags.errors import CatalogError, UnknownJaxlibError
from xla_flags.generate import (
    PASS_LISTS,
    PROTO_FILES,
    FieldFact,
    FlagFact,
    OptionFacts,
    catalog_json,
    field_shapes,
)
from xla_flags.kinds import FieldShape, foreign_flags
from xla_flags.schema import Catalog, FieldSpec, FlagKind, shipped_versions, version_key

CACHE_FORMAT = 1
"""Raised when a derived catalog of the same library would come out differently."""


@functools.cache
def installed_version() -> str:
    """The version of the installed jaxlib, looked up once in a process.

    Raises:
      UnknownJaxlibError: there is none.
    """
    try:
        return importlib.metadata.version("jaxlib")
    except importlib.metadata.PackageNotFoundError:
        raise UnknownJaxlibError("no jaxlib is installed here; name a version instead") from None


def installed_library() -> Path:
    """The shared object that holds the installed jaxlib's XLA.

    Raises:
      UnknownJaxlibError: there is none.
    """
    spec = importlib.util.find_spec("jaxlib")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for name in ("libjax_common.so", "libjax_common.dylib", "jax_common.dll", "_jax.so"):
            path = Path(folder, name)
            if path.is_file():
                return path
    raise UnknownJaxlibError("no jaxlib is installed here, or its shared library is not where it should be")


def installed_catalog() -> Catalog:
    """The catalog of the installed jaxlib; see `Catalog.installed`."""
    version = installed_version()
    if version in shipped_versions():
        return Catalog.for_jaxlib(version)
    return derived_catalog(version, installed_library())


def derived_catalog(version: str, library: Path, cache: Path | None = None) -> Catalog:
    """The catalog of a jaxlib, from its shared library and the nearest shipped catalog.

    Args:
      version: of that jaxlib.
      library: its shared object.
      cache: a folder to keep the answer in; None: the user's cache folder.

    Raises:
      CatalogError: the library holds no descriptors of DebugOptions.
    """
    folder = _cache_folder() if cache is None else cache
    if folder is None:
        return Catalog.from_json(derive(version, library))
    status = library.stat()
    key = f"{version}-{status.st_size}-{status.st_mtime_ns}-{CACHE_FORMAT}"
    kept = folder / f"catalog-{key}.json"
    data = _read_cache(kept, str(library))
    if data is None:
        data = derive(version, library)
        _write_cache(kept, {**data, "library": str(library)})
    return Catalog.from_json(data)


def _cache_folder() -> Path | None:
    """Where to keep derived catalogs; None: nowhere, as for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "xla_flags"
    except RuntimeError:
        return None


def _read_cache(path: Path, library: str) -> Mapping[str, Any] | None:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and data.get("library") == library else None


def _write_cache(path: Path, data: Mapping[str, Any]) -> None:
    """Keeps a derived catalog; a folder that cannot be written costs time, not the answer."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".new") as file:
            json.dump(data, file)
        Path(file.name).replace(path)


def read_types(library: Path) -> Types:
    """The descriptors of DebugOptions in a shared library.

    Raises:
      CatalogError: there are none.
    """
    types = Types()
    for data in embedded_files(library, PROTO_FILES):
        read_file(data, types)
    return types


def embedded_files(library: Path, names: Iterable[str]) -> list[bytes]:
    """The FileDescriptorProtos of .proto files that were compiled into a shared library.

    Raises:
      CatalogError: one of them was not.
    """
    with _mapped(library) as content:
        return [embedded_file(content, name) for name in names]


def _mapped(library: Path) -> mmap.mmap:
    with library.open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise CatalogError(f"{library} is empty") from error


def flag_like_strings(library: Path) -> frozenset[str]:
    """C strings in a shared library that could be names of flags."""
    with _mapped(library) as content:
        return frozenset(str(each[:-1], "ascii") for each in re.findall(rb"xla_[a-z0-9_]+\0", content))


def _has_text(library: Path, text: bytes) -> bool:
    with _mapped(library) as content:
        return content.find(text) >= 0


def derive(version: str, library: Path, nearest: Catalog | None = None) -> dict[str, Any]:
    """A catalog, in the form of `data/`, of a jaxlib that nobody recorded.

    Args:
      version: of that jaxlib.
      library: its shared object.
      nearest: the catalog to take the rest from; None: the shipped one of the nearest version.
    """
    types = read_types(library)
    shapes = field_shapes(types)
    nearest = Catalog.for_jaxlib(nearest_version(version)) if nearest is None else nearest
    fields = [
        FieldFact(
            name,
            number,
            shape.type,
            shape.repeated,
            shape.is_map,
            shape.enum,
            *_defaults(nearest, name, shape),
        )
        for name, (number, shape) in shapes.items()
    ]
    flags = _flags(nearest, {name: shape for name, (_, shape) in shapes.items()}, flag_like_strings(library))
    data = catalog_json(version, flags, fields, types.enums, OptionFacts(nearest.jax_options, nearest.quirks))
    known = {flag.name: flag for flag in nearest.flags.values()}
    passes_checked = _has_text(library, b"in HLO pass filter entry")
    for row in data["flags"]:
        # How a flag reads is copied where it was observed, and presumed where it is new.
        old = known.get(row[0])
        if old is not None and old.type == row[2] and (old.field.name if old.field else "") == row[4]:
            row[1] = str(old.kind)
        if row[0] in PASS_LISTS:
            row[1] = str(FlagKind.PASS_LIST if passes_checked else FlagKind.COMMA_LIST)
        extra = row.pop() if isinstance(row[-1], dict) else {}
        row.append({**extra, "presumed": True})
    return {**data, "exact": False}


def nearest_version(version: str) -> str:
    """The newest shipped version that is not newer, else the oldest."""
    not_newer = [each for each in shipped_versions() if version_key(each) <= version_key(version)]
    return not_newer[-1] if not_newer else shipped_versions()[0]


def _defaults(nearest: Catalog, name: str, shape: FieldShape) -> tuple[Any, Any]:
    """The field's default and XLA's own: as in the nearest catalog, or protobuf's."""
    known = nearest.fields.get(name)
    if (
        known is not None
        and (known.type, known.repeated) == (shape.type, shape.repeated)
        and _fits(known, shape)
    ):
        return known.default, known.xla_default
    default: Any
    if shape.is_map or (shape.type == "message" and not shape.repeated):
        default = {}
    elif shape.repeated:
        default = []
    elif shape.type == "enum":
        default = shape.members[0] if shape.members else 0
    else:
        default = {"bool": False, "string": "", "float": 0.0, "double": 0.0}.get(shape.type, 0)
    return default, default


def _fits(known: FieldSpec, shape: FieldShape) -> bool:
    """Whether the members in a known default still exist."""
    if shape.type != "enum":
        return True
    values = known.default if known.repeated else [known.default]
    return set(values) <= set(shape.members)


def _flags(nearest: Catalog, fields: Mapping[str, FieldShape], strings: frozenset[str]) -> list[FlagFact]:
    """The flags there are, in the order of the nearest catalog, new ones last."""
    foreign = foreign_flags(fields)
    names = dict.fromkeys((*nearest.flags, *fields, *foreign))
    flags = []
    for name in names:
        if name not in strings:
            continue
        field = foreign.get(name, name if name in fields else "")
        known = nearest.flags.get(name)
        if known is not None:
            flags.append(FlagFact(name, known.type, known.default, field))
        elif field == name and _has_flag(nearest, name):
            flags.append(FlagFact(name, _printed_type(fields[name]), "", field))
    return flags


def _has_flag(nearest: Catalog, field: str) -> bool:
    """Whether a new field's name is presumed a flag: not if the field is known to have none of that name."""
    return field not in nearest.fields


def _printed_type(shape: FieldShape) -> str:
    return (
        shape.type if shape.type in ("bool", "int32", "int64", "float") and not shape.repeated else "string"
    )
