"""Recorded executables and what XLA's own dumps say of them, for the tests of reading and grouping.

``expected.json.gz`` and ``executables.tar.xz`` come from ``tools/pack_groundtruth.py``.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jax_cmdbuf.executable.decode import parse_version
from jax_cmdbuf.executable.executable import DeviceDescription, Executable

DATA = Path(__file__).parents[1] / "data" / "executable"


@functools.cache
def expected() -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / "expected.json.gz").read_bytes()))  # type: ignore[no-any-return]


@functools.cache
def packed() -> dict[str, bytes]:
    with tarfile.open(DATA / "executables.tar.xz") as tar:
        return {Path(member.name).stem: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


@functools.cache
def decoded(name: str) -> Executable:
    return Executable.from_bytes(packed()[name], source=name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, part in (("grouping_case", "grouping"), ("policy_case", "policy")):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, sorted(expected()[part]))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Descriptors are searched and cached anew, not in the caller's home."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("XDG_CACHE_HOME")
    if before is not None:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture
def serialized() -> Callable[[str], bytes]:
    """Name of a recording -> the serialized executable."""
    return lambda name: packed()[name]


@pytest.fixture
def read() -> Callable[[str], Executable]:
    """Name of a recording -> the executable."""
    return decoded


@pytest.fixture
def recorded() -> Callable[[str], dict[str, Any]]:
    """Name of a grouping recording -> what the dumps say."""
    return lambda name: expected()["grouping"][name]  # type: ignore[no-any-return]


@pytest.fixture
def recorded_counts() -> Callable[[str], dict[str, Any]]:
    """Name of a recording from a GPU -> update mode -> the counts XLA logged."""
    return lambda name: expected()["policy"][name]  # type: ignore[no-any-return]


@pytest.fixture
def device_of() -> Callable[[str], DeviceDescription]:
    """Name of a grouping recording -> the device it was grouped for."""

    def describe(name: str) -> DeviceDescription:
        fields = expected()["grouping"][name]["device"]
        return DeviceDescription(
            fields["device_description_str"],
            parse_version(fields["runtime_version"]),
            parse_version(fields["driver_version"]),
            parse_version(fields["compile_time_toolkit_version"]),
            source="target",
        )

    return describe
