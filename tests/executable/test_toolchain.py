from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.executable import toolchain
from jax_cmdbuf.executable.toolchain import LIBDEVICE, PTXAS, cuda_plugin_directory, find_toolchain


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the plugin, but neither wheels nor a toolkit; returns an empty site-packages."""
    site = tmp_path / "site"
    plugin = site / "jax_plugins" / "xla_cuda13"
    plugin.mkdir(parents=True)
    (plugin / "xla_cuda_plugin.so").touch()
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(toolchain, "_DEFAULT_TOOLKIT", tmp_path / "no-toolkit")
    monkeypatch.setattr(toolchain, "_locations", lambda module: [site / module.replace(".", "/")])
    monkeypatch.setattr(toolchain, "_version", lambda name: "0.12.0.1")
    return site


def provide(root: Path, *places: Path) -> None:
    for place in places:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).touch(0o755)


def test_the_wheels_come_before_a_toolkit(bare: Path, tmp_path: Path) -> None:
    provide(bare / "nvidia/cu13", PTXAS, LIBDEVICE)
    provide(tmp_path / "toolkit", PTXAS, LIBDEVICE)
    found = find_toolchain({"CUDA_HOME": str(tmp_path / "toolkit"), "PATH": ""})
    assert found.root == bare / "nvidia/cu13"
    assert (found.plugin, found.plugin_version) == ("jax-cuda13-pjrt", "0.12.0.1")
    assert found.link_into(tmp_path / "links") == found.root
    assert not (tmp_path / "links").exists()


def test_the_directory_asked_for_comes_first(bare: Path, tmp_path: Path) -> None:
    provide(bare / "nvidia/cu13", PTXAS, LIBDEVICE)
    provide(tmp_path / "asked", PTXAS, LIBDEVICE)
    assert find_toolchain({"PATH": ""}, str(tmp_path / "asked")).root == tmp_path / "asked"


def test_pieces_of_two_places_are_linked_together(bare: Path, tmp_path: Path) -> None:
    provide(tmp_path / "elsewhere", Path("ptxas"))
    provide(tmp_path / "toolkit", LIBDEVICE)
    found = find_toolchain({"CUDA_PATH": str(tmp_path / "toolkit"), "PATH": str(tmp_path / "elsewhere")})
    assert found.root is None
    links = found.link_into(tmp_path / "links")
    assert (links / PTXAS).resolve() == tmp_path / "elsewhere" / "ptxas"
    assert (links / LIBDEVICE).resolve() == tmp_path / "toolkit" / LIBDEVICE


def test_no_ptxas_names_its_package(bare: Path) -> None:
    provide(bare / "nvidia/cu13", LIBDEVICE)
    with pytest.raises(
        MissingDependencyError, match=r"^ptxas is not installed.*\(package nvidia-cuda-nvcc\)$"
    ):
        find_toolchain({"PATH": ""})


def test_no_libdevice_names_its_package(bare: Path) -> None:
    provide(bare / "nvidia/cu13", PTXAS)
    with pytest.raises(MissingDependencyError, match=r"^libdevice.10.bc is not .*\(package nvidia-nvvm\)$"):
        find_toolchain({"PATH": ""})


def test_no_plugin_names_its_package(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provide(bare / "nvidia/cu13", PTXAS, LIBDEVICE)
    monkeypatch.setattr(toolchain, "_locations", lambda module: [])
    with pytest.raises(
        MissingDependencyError, match=r"'jax-cmdbuf\[aot\]' \(package jax-cuda13-pjrt, of jaxlib"
    ):
        find_toolchain({"PATH": ""})
    assert cuda_plugin_directory() is None


def test_a_plugin_of_another_release_says_which_to_install(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"jaxlib": "0.12.0.1", "jax-cuda13-pjrt": "0.11.2"}
    monkeypatch.setattr(toolchain, "_version", versions.get)
    with pytest.raises(
        MissingDependencyError, match=r"0\.11\.2 does not fit jaxlib 0\.12\.0\.1: pip install 'jax"
    ):
        find_toolchain({"PATH": ""})


def test_the_installed_plugin_is_found() -> None:
    directory = cuda_plugin_directory()
    assert directory is not None
    assert (directory / "xla_cuda_plugin.so").is_file()
