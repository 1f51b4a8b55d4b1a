"""Descriptors found in a binary, kept on disk: finding them again would mean searching hundreds of megabytes.

One file per binary, named by the digest of its path, size and modification time, so that a reinstalled binary
is searched anew. Invariant: the cache never decides an outcome; whatever goes wrong with it, the binary is
searched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

__all__ = ["cache_folder", "cache_path", "load", "store"]

_FORMAT = "1"  # part of the key: raise it when what is stored changes


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/jax_cmdbuf``, by default ``~/.cache/jax_cmdbuf``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative value is to be ignored, says the XDG base directory specification.
    root = Path(base) if base and Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "jax_cmdbuf"


def cache_path(binary: Path) -> Path:
    """The cache file of a binary in its present state.

    Raises:
      OSError: the binary cannot be examined.
    """
    state = binary.stat()
    key = f"{_FORMAT}\0{binary.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"
    return cache_folder() / f"descriptors-{hashlib.sha256(key.encode()).hexdigest()[:32]}.binpb"


def load(binary: Path) -> dict[str, bytes] | None:
    """The stored files of a binary, name -> serialized ``FileDescriptorProto``; None: no usable entry."""
    try:
        content = cache_path(binary).read_bytes()
        stored = descriptor_pb2.FileDescriptorSet.FromString(content)
    except (OSError, RuntimeError, DecodeError):
        return None
    return {file.name: file.SerializeToString() for file in stored.file} or None


def store(binary: Path, files: Mapping[str, bytes]) -> None:
    """Stores a binary's files; a reader sees the old entry or the whole new one; failure is ignored."""
    content = b"".join(
        descriptor_pb2.FileDescriptorSet(
            file=[descriptor_pb2.FileDescriptorProto.FromString(serialized)]
        ).SerializeToString()
        for serialized in files.values()
    )
    with contextlib.suppress(OSError, RuntimeError):
        target = cache_path(binary)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).replace(target)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
