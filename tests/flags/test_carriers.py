from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from tests.flags.jaxlibs import needs_jaxlib
from xla_flags import Catalog, CatalogError
from xla_flags.carriers import Carrier, installed_carriers


def install(folder: Path, name: str, version: str, *files: str) -> None:
    """Makes a package as pip would leave it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(file))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(metadata, "distributions", lambda: metadata.MetadataPathFinder.find_distributions(
        metadata.DistributionFinder.Context(path=[str(tmp_path)])))  # fmt: skip
    return tmp_path


def test_every_package_with_an_xla_is_found(packages: Path) -> None:  # B21
    install(packages, "jax_cuda12_pjrt", "0.10.2", "jax_plugins/xla_cuda12/xla_cuda_plugin.so")
    install(packages, "jaxlib", "0.12.0.1", "jaxlib/_jax.so", "jaxlib/libjax_common.so")
    install(packages, "tensorflow-cpu", "2.20.0", "tensorflow/libtensorflow_cc.so.2")
    install(packages, "jax-cuda12-plugin", "0.10.2", "jax_cuda12_plugin/_solver.so")
    install(packages, "numpy", "2.0", "numpy/core.so")
    found = installed_carriers()
    assert [(each.name, each.version) for each in found] == [
        ("jaxlib", "0.12.0.1"),
        ("jax-cuda12-pjrt", "0.10.2"),
        ("tensorflow-cpu", "2.20.0"),
    ]
    assert [each.library.name for each in found if each.library is not None] == [
        "libjax_common.so",
        "xla_cuda_plugin.so",
        "libtensorflow_cc.so.2",
    ]
    assert found[1].catalog() is Catalog.for_jaxlib("0.10.2")
    with pytest.raises(CatalogError):
        found[2].catalog()


def test_a_package_without_its_library(packages: Path) -> None:
    install(packages, "tensorflow", "2.20.0")
    (found,) = installed_carriers()
    assert found == Carrier("tensorflow", "2.20.0", None, False)
    with pytest.raises(CatalogError, match="has no library"):
        found.catalog()


@needs_jaxlib
def test_the_installed_jaxlib_is_one() -> None:
    first = installed_carriers()[0]
    assert (first.name, first.version) == ("jaxlib", metadata.version("jaxlib"))
    assert first.library is not None
    assert first.catalog().version == first.version
