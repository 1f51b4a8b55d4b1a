from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from jax_cmdbuf.executable import descriptor_cache

FILES = {
    name: descriptor_pb2.FileDescriptorProto(name=name, package="p").SerializeToString()
    for name in ("a.proto", "b.proto")
}


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "lib.so"
    path.write_bytes(b"library")
    return path


def test_what_is_stored_comes_back(binary: Path) -> None:
    assert descriptor_cache.load(binary) is None
    descriptor_cache.store(binary, FILES)
    assert descriptor_cache.load(binary) == FILES
    assert [path.name for path in descriptor_cache.cache_folder().iterdir()] == [
        descriptor_cache.cache_path(binary).name
    ]


def test_a_changed_binary_is_another_one(binary: Path) -> None:
    descriptor_cache.store(binary, FILES)
    os.utime(binary, (1, 1))
    assert descriptor_cache.load(binary) is None
    descriptor_cache.store(binary, FILES)
    binary.write_bytes(b"library, longer")
    os.utime(binary, (1, 1))
    assert descriptor_cache.load(binary) is None


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"\x0a\x05"])
def test_a_damaged_entry_is_no_entry(binary: Path, content: bytes) -> None:
    descriptor_cache.store(binary, FILES)
    descriptor_cache.cache_path(binary).write_bytes(content)
    assert descriptor_cache.load(binary) is None


def test_an_unusable_folder_is_no_error(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    descriptor_cache.store(binary, FILES)
    assert descriptor_cache.load(binary) is None


def test_a_full_disk_leaves_nothing_behind(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    descriptor_cache.store(binary, FILES)
    assert list(descriptor_cache.cache_folder().iterdir()) == []


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert descriptor_cache.cache_folder() == tmp_path / "jax_cmdbuf"
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert descriptor_cache.cache_folder() == tmp_path / ".cache" / "jax_cmdbuf"
