from __future__ import annotations

import importlib.util
import re
from importlib import metadata
from pathlib import Path

import pytest

from xla_flags import Catalog, shipped_versions
from xla_flags.cache_key import in_cache_key


def test_dumps_stay_out_and_tuning_does_not() -> None:
    assert not in_cache_key("xla_dump_to", "0.12.0.1")
    assert in_cache_key("xla_gpu_autotune_level", "0.12.0.1")
    assert in_cache_key("xla_gpu_per_fusion_autotune_cache_dir", "0.10.2")
    assert not in_cache_key("xla_gpu_per_fusion_autotune_cache_dir", "0.11.2")


def test_it_is_what_the_installed_jax_does() -> None:
    spec = importlib.util.find_spec("jax")
    if spec is None or spec.origin is None:
        pytest.skip("no jax is installed")
    version = metadata.version("jax")
    if version not in shipped_versions():
        pytest.skip(f"jax {version} is not on record")
    source = (Path(spec.origin).parent / "_src" / "cache_key.py").read_text()
    listed = source.partition("xla_flags_to_exclude_from_cache_key = [")[2].partition("]")[0]
    names = {*re.findall(r'"--(\w+)"', listed)}
    cleared = {*re.findall(r"debug_options\.(\w+) = ", source)}
    flags = Catalog.for_jaxlib(version).flags
    assert {name for name in flags if not in_cache_key(name, version)} == names & cleared & {*flags}
