from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.executable import descriptor_cache, descriptors
from jax_cmdbuf.executable.descriptors import (
    descriptor_files,
    installed_binaries,
    installed_schema,
    read_files,
)

ROOT = "root/main.proto"


def file(name: str, *imports: str, message: str = "M") -> descriptor_pb2.FileDescriptorProto:
    proto = descriptor_pb2.FileDescriptorProto(name=name, package=name.split("/")[0], syntax="proto3")
    proto.dependency.extend(imports)
    proto.message_type.add(name=message).field.add(name="f", number=1, type=5, label=1)
    return proto


def library(path: Path, *protos: descriptor_pb2.FileDescriptorProto, between: bytes = b"\0\0\0\0") -> Path:
    path.write_bytes(b"\x7fELF" + between.join((b"", *(proto.SerializeToString() for proto in protos), b"")))
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# What may lie behind a descriptor: padding, text, another field's tag, a tag out of order, another
# descriptor.
@pytest.mark.parametrize(
    "between", [b"\0", b"abc.proto\x12", b"\x22", b"\x7a\x02ab", b"\x0a", b"\x28\x01", b""]
)
def test_embedded_files_are_found_whatever_surrounds_them(tmp_path: Path, between: bytes) -> None:
    protos = (file("a/one.proto"), file("b/two.proto", "a/one.proto"), file("c/" + "x" * 100 + ".proto"))
    found = dict(descriptor_files(library(tmp_path / "lib.so", *protos, between=between)))
    assert found == {proto.name: proto.SerializeToString() for proto in protos}


def test_the_first_library_wins_and_the_next_fills_in(tmp_path: Path) -> None:
    plugin = library(tmp_path / "plugin.so", file(ROOT, "other/dep.proto", message="FromPlugin"))
    common = library(
        tmp_path / "common.so",
        file(ROOT, message="FromCommon"),
        file("other/dep.proto"),
        file("more/z.proto"),
    )
    found = read_files([plugin, common], [ROOT])
    assert list(found) == ["other/dep.proto", ROOT]
    assert found[ROOT].message_type[0].name == "FromPlugin"


def test_a_complete_first_library_is_enough(tmp_path: Path) -> None:
    plugin = library(tmp_path / "plugin.so", file(ROOT))
    assert list(read_files([plugin, tmp_path / "is not there.so"], [ROOT])) == [ROOT]


def test_a_missing_file_names_the_package(tmp_path: Path) -> None:
    plugin = library(tmp_path / "plugin.so", file(ROOT, "other/dep.proto"))
    with pytest.raises(
        MissingDependencyError, match=r"other/dep\.proto not found.*install jaxlib and jax-cuda13-pjrt"
    ):
        read_files([plugin], [ROOT])
    with pytest.raises(MissingDependencyError, match="jax-cuda13-pjrt"):
        read_files([], [ROOT])


def test_a_library_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = library(tmp_path / "plugin.so", file(ROOT))
    first = read_files([plugin], [ROOT])
    assert descriptor_cache.load(plugin) is not None
    monkeypatch.setattr(descriptors, "descriptor_files", None)  # a second search would fail
    assert read_files([plugin], [ROOT]) == first


def test_circular_imports_end(tmp_path: Path) -> None:
    plugin = library(tmp_path / "p.so", file(ROOT, "other/dep.proto"), file("other/dep.proto", ROOT))
    assert set(read_files([plugin], [ROOT])) == {ROOT, "other/dep.proto"}


def test_installed_binaries_define_the_executable() -> None:
    assert any(path.name == "libjax_common.so" for path in installed_binaries())
    fields = installed_schema().message("xla.gpu.GpuExecutableProto").DESCRIPTOR.fields_by_name
    assert {"thunks", "buffer_assignment", "constants"} <= set(fields)
    with pytest.raises(MissingDependencyError, match=r"does not define xla\.NoSuch"):
        installed_schema().message("xla.NoSuch")


def test_plugins_come_before_the_common_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("jax_plugins/xla_cuda12", "jax_plugins/xla_cuda13", "jaxlib"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("jax_plugins/xla_cuda12/xla_cuda_plugin.so", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"):
        (tmp_path / name).touch()
    (tmp_path / "jaxlib" / "libjax_common.so").touch()

    class Spec:
        def __init__(self, name: str) -> None:
            self.submodule_search_locations = [str(tmp_path / name)]

    monkeypatch.setattr(descriptors, "find_spec", Spec)
    names = [path.relative_to(tmp_path).parts[-2] for path in installed_binaries()]
    assert names == ["xla_cuda13", "xla_cuda12", "jaxlib"]
    monkeypatch.setattr(descriptors, "find_spec", lambda name: None)
    assert installed_binaries() == ()
