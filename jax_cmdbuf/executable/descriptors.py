"""Message classes of XLA's protos, built from the descriptors that every jaxlib binary carries.

A C++ protobuf library embeds each of its ``.proto`` files as a serialized ``FileDescriptorProto``. They are
found by
name in the installed binaries: the CUDA plugin first (jaxlib 0.11's own library has no GPU messages),
jaxlib's common library for what is missing. Invariant: a file comes from the first binary that has it, and a
schema is handed out only when every file its roots import was found.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.executable import descriptor_cache, schema_union

__all__ = [
    "ROOTS",
    "Schema",
    "descriptor_files",
    "installed_binaries",
    "installed_schema",
    "load_schema",
    "read_files",
]

# The files that hold the messages this package reads; what they import comes along.
ROOTS = (
    "xla/service/gpu/gpu_executable.proto",
    "xla/pjrt/proto/compile_options.proto",
    "xla/util/split_proto/split_proto.proto",
)

_GPU_PACKAGE = "jax-cuda13-pjrt"
_MARK = b".proto\x12"  # the end of a file's name and the tag of its package
_LONGEST_FILE = 1 << 20
# Field numbers of FileDescriptorProto, all with tags of one byte; C++ writes fields in ascending order.
_LENGTH_DELIMITED, _VARINT = 2, 0


@dataclass(frozen=True)
class Schema:
    """The messages of one set of binaries.

    Attributes:
      binaries: where the descriptors were looked for, the preferred one first.
    """

    pool: descriptor_pool.DescriptorPool
    binaries: tuple[Path, ...]

    def message(self, full_name: str) -> type[Message]:
        """The class of a message, for example "xla.gpu.GpuExecutableProto".

        Raises:
          MissingDependencyError: these binaries do not define it.
        """
        try:
            descriptor = self.pool.FindMessageTypeByName(full_name)
        except KeyError:
            raise MissingDependencyError(
                f"the installed jaxlib does not define {full_name}: install {_GPU_PACKAGE} of its version"
            ) from None
        return message_factory.GetMessageClass(descriptor)


def installed_binaries() -> tuple[Path, ...]:
    """The binaries of this environment that may hold descriptors: CUDA plugins, newest first, then
    jaxlib's."""
    found: list[Path] = []
    plugins = find_spec("jax_plugins")
    for place in (plugins.submodule_search_locations or ()) if plugins else ():
        found += sorted(Path(place).glob("xla_cuda*/xla_cuda_plugin.so"), reverse=True)
    jaxlib = find_spec("jaxlib")
    for place in (jaxlib.submodule_search_locations or ()) if jaxlib else ():
        found += [path for path in (Path(place) / "libjax_common.so",) if path.exists()]
    return tuple(found)


@lru_cache(maxsize=1)
def installed_schema() -> Schema:
    """The schema of the installed jaxlib and CUDA plugin; found once per process.

    Raises:
      MissingDependencyError: nothing installed defines the GPU messages; names the package that does.
    """
    return load_schema(installed_binaries())


def load_schema(binaries: Iterable[Path], roots: Iterable[str] = ROOTS) -> Schema:
    """Builds the schema that defines the files ``roots`` and all they import, plus what other releases add.

    Args:
      binaries: shared libraries, the preferred one first; read only as far as needed.
      roots: names of .proto files.

    Raises:
      MissingDependencyError: a file is in none of them; the text names what to install.
    """
    roots = tuple(roots)
    binaries = tuple(binaries)
    files = read_files(binaries, roots)
    try:
        pool = _pool(schema_union.add_missing(files, schema_union.additions()), roots)
    except TypeError:  # a future release that contradicts the additions is read by its own schema alone
        pool = _pool(files, roots)
    return Schema(pool, binaries)


def read_files(
    binaries: Iterable[Path], roots: Iterable[str]
) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """The files ``roots`` and all they import, as the binaries define them: name -> descriptor.

    Raises:
      MissingDependencyError: a file is in none of them; the text names what to install.
    """
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    missing = _missing(files, roots)
    for binary in binaries:
        if not missing:
            break
        known = descriptor_cache.load(binary)
        if known is None:
            known = dict(descriptor_files(binary))
            descriptor_cache.store(binary, known)
        for name, serialized in known.items():
            if name not in files:
                files[name] = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        missing = _missing(files, roots)
    if missing:
        raise MissingDependencyError(
            f"no installed library describes XLA's GPU executables ({missing[0]} not found): "
            f"install jaxlib and {_GPU_PACKAGE} of the same version"
        )
    return {name: files[name] for name in _closure(files, roots)}


def _missing(files: Mapping[str, descriptor_pb2.FileDescriptorProto], roots: Iterable[str]) -> list[str]:
    return [name for name in _closure(files, roots) if name not in files]


def _closure(files: Mapping[str, descriptor_pb2.FileDescriptorProto], roots: Iterable[str]) -> list[str]:
    """Names of the roots and everything they import, imports first."""
    order: dict[str, None] = {}
    stack = [(name, False) for name in reversed(list(roots))]
    entered: set[str] = set()
    while stack:
        name, done = stack.pop()
        if done:
            order[name] = None
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            if name in files:
                stack += [(imported, False) for imported in files[name].dependency]
    return list(order)


def _pool(
    files: Mapping[str, descriptor_pb2.FileDescriptorProto], roots: Iterable[str]
) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for name in _closure(files, roots):
        pool.Add(files[name])
    return pool


def descriptor_files(binary: Path) -> Iterator[tuple[str, bytes]]:
    """Every embedded .proto file of a shared library: (its name, its serialized ``FileDescriptorProto``).

    The library is mapped, not read; one pass of ``find`` over it.
    """
    seen: set[str] = set()
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(_MARK)
        while at >= 0:
            end_of_name = at + len(_MARK) - 1
            start = _start_of_file(content, end_of_name)
            if start is not None:
                parsed = _parse(content[start : start + _LONGEST_FILE])
                if parsed is not None and parsed[0] not in seen:
                    seen.add(parsed[0])
                    yield parsed
            at = content.find(_MARK, at + 1)


def _start_of_file(content: mmap.mmap, end_of_name: int) -> int | None:
    """Where the descriptor whose name ends here begins: tag 1, then the length that fits."""
    before = content[max(0, end_of_name - 129) : end_of_name]
    for length in range(len(".proto") + 1, len(before) - 1):
        at = len(before) - length - 2
        if before[at] == 0x0A and before[at + 1] == length:
            return end_of_name - length - 2
    return None


def _parse(window: bytes) -> tuple[str, bytes] | None:
    """The descriptor at the window's start; its end is where the fields stop ascending or making sense."""
    ends = _field_ends(window)
    # What follows may look like one more field by chance, so shorter readings are tried too.
    for end in reversed(ends[-3:]):
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(window[:end])
        except DecodeError:
            continue
        if file.name.isascii() and file.name.endswith(".proto") and file.IsInitialized():
            return sys.intern(file.name), window[:end]
    return None


def _field_ends(window: bytes) -> list[int]:
    """Ends of the leading run of fields whose numbers ascend."""
    ends: list[int] = []
    at, last = 0, 0
    while at < len(window):
        number, wire_type = window[at] >> 3, window[at] & 7
        once = number in (1, 2, 8, 9, 12, 13, 14)
        if window[at] >= 0x80 or number > 14 or number < last or (once and number == last):
            break
        value, after = _varint(window, at + 1)
        if wire_type == _LENGTH_DELIMITED:
            after += value
        elif wire_type != _VARINT:
            break
        if number == 0 or after > len(window):
            break
        at, last = after, number
        ends.append(at)
    return ends


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return 1 << 62, at
