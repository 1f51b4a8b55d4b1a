from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from jax_cmdbuf.api.carriers import Carrier, installed_carriers

CUDA = Carrier(
    "jax-cuda13-pjrt", "0.12.0.1", ("cuda", "gpu"), ("jax_plugins.xla_cuda13", "xla_cuda_plugin.so")
)


def test_jaxlib_comes_first_with_its_version_and_flags() -> None:
    first, *plugins = installed_carriers()
    assert first.title == f"jaxlib {importlib.metadata.version('jaxlib')}"
    assert "xla_gpu_enable_command_buffer" in first.catalog().flags
    assert all(plugin.platforms for plugin in plugins)


@pytest.mark.parametrize(
    ("platforms", "used"),
    [("", True), ("cpu", False), ("cuda", True), ("cuda,cpu", True), ("cpu, gpu", True), ("tpu", False)],
)
def test_a_plugin_counts_where_its_platform_is_wanted(platforms: str, used: bool) -> None:
    assert CUDA.is_used({"JAX_PLATFORMS": platforms}) is used
    assert Carrier("jaxlib", "1").is_used({"JAX_PLATFORMS": platforms})


def test_a_plugins_own_table_is_its_versions() -> None:
    assert CUDA.catalog().version == "0.12.0.1"


def test_an_unrecorded_plugin_is_read_from_its_binary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "jax_cmdbuf_test_plugin"
    package.mkdir()
    (package / "__init__.py").touch()
    from xla_flags.installed import installed_library

    (package / "plugin.so").symlink_to(installed_library())
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    catalog = Carrier("p", "0.0.1.dev5", ("cuda",), ("jax_cmdbuf_test_plugin", "plugin.so")).catalog()
    assert not catalog.exact
    assert "xla_gpu_enable_command_buffer" in catalog.flags
