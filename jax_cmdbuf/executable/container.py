"""Bytes of a serialized executable -> its two messages.

Layout, outside in: gzip (optional); IFRT's header (varint length, metadata); ``ExecutableAndOptionsProto``,
plain in jaxlib 0.10 and a split proto in a Riegeli file since; in its ``serialized_executable``, a split
proto with the ``GpuExecutableProto``. Invariant: whatever the bytes are, the result is messages or a
:class:`ContainerError` of one sentence, in time and memory bounded by a multiple of the input.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.descriptors import Schema, installed_schema
from jax_cmdbuf.executable.ifrt_header import RUNTIME, check_header, split_header
from jax_cmdbuf.executable.riegeli import HashCheck, is_riegeli
from jax_cmdbuf.executable.split_proto import read_split_proto

__all__ = ["Container", "read_container"]

_GZIP_MAGIC = b"\x1f\x8b"
_MAX_SIZE = 1 << 30  # decoded bytes; XLA's own limit for one message is 2 GiB
_RATIO_FREE, _MAX_GZIP_RATIO = 64 << 20, 256
_GZIP_STEP = 4 << 20
_SNIFFED = 64  # every header names its runtime within this many bytes
# Chunks verified by checksum, in bytes together: a quarter of a second. Larger files are checked by structure
# only.
_HASHED_BYTES = 1 << 20


@dataclass(frozen=True)
class Container:
    """What one serialized executable holds.

    Attributes:
      outer: ``xla.ExecutableAndOptionsProto``, its ``serialized_executable`` cleared.
      executable: ``xla.gpu.GpuExecutableProto``.
      outer_is_riegeli: False for jaxlib 0.10's layout.
      schema: what the messages were read with.
    """

    outer: Message
    executable: Message
    outer_is_riegeli: bool
    schema: Schema


def read_container(data: bytes, *, source: str = "the input", trusted: bool = False) -> Container:
    """Reads a serialized executable, gzipped or not.

    Args:
      data: the bytes.
      source: how errors name them.
      trusted: they came from this process's XLA, so that checksums of the data need no check.

    Raises:
      ContainerError: not a serialized XLA:GPU executable, or a damaged one.
      MissingDependencyError: nothing installed defines the messages.
    """
    try:
        if not data:
            raise ContainerError("it is empty")
        if data.startswith(_GZIP_MAGIC):
            data = _gunzip(data)
        header, data = split_header(data)
        schema = installed_schema()
        check = HashCheck(0 if trusted else _HASHED_BYTES)
        container = _read_messages(data, schema, check)
        check_header(header, container.executable)
        return container
    except ContainerError as error:
        raise ContainerError(f"{source} is not a readable XLA:GPU executable: {error}") from error


def _read_messages(data: bytes, schema: Schema, check: HashCheck) -> Container:
    outer_is_riegeli = is_riegeli(data)
    if outer_is_riegeli:
        outer = read_split_proto(data, "xla.ExecutableAndOptionsProto", schema, check)
        check = HashCheck(0)  # the inner file was part of the outer one's data
    else:
        outer = _parse(schema.message("xla.ExecutableAndOptionsProto"), data)
    inner = outer.serialized_executable  # type: ignore[attr-defined]
    outer.ClearField("serialized_executable")
    if not is_riegeli(inner):
        raise ContainerError(
            "it holds no split-proto GPU executable (compiled for a CPU, or an unknown layout)"
        )
    executable = read_split_proto(inner, "xla.gpu.GpuExecutableProto", schema, check)
    return Container(outer, executable, outer_is_riegeli, schema)


def _parse(cls: type[Message], data: bytes) -> Message:
    try:
        return cls.FromString(data)
    except DecodeError as error:
        raise ContainerError("it is neither a Riegeli file nor a plain message") from error


def _gunzip(data: bytes) -> bytes:
    """The content of a gzip file, within the limits."""
    limit = min(_MAX_SIZE, max(_RATIO_FREE, _MAX_GZIP_RATIO * len(data)))
    parts: list[bytes] = []
    size = 0
    try:
        while data:
            member = zlib.decompressobj(wbits=31)
            while not member.eof:
                part = member.decompress(data, _GZIP_STEP)
                data = member.unconsumed_tail or member.unused_data
                if size < _SNIFFED <= size + len(part) and RUNTIME not in b"".join((*parts, part))[:_SNIFFED]:
                    raise ContainerError("what it unpacks to has no IFRT header")  # before a bomb goes off
                size += len(part)
                parts.append(part)
                if size > limit:
                    raise ContainerError(f"it unpacks to more than {limit >> 20} MiB")
                if not part and not data and not member.eof:
                    raise ContainerError("its gzip data ends early")
    except zlib.error as error:
        raise ContainerError("its gzip data is damaged") from error
    return b"".join(parts)
