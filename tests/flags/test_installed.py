from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from tests.flags.jaxlibs import library, needs_jaxlib
from xla_flags import Catalog, CatalogError, UnknownJaxlibError, parse, shipped_versions
from xla_flags import installed as module
from xla_flags.installed import derive, derived_catalog, flag_like_strings, installed_version, nearest_version


def test_nearest_version() -> None:
    assert nearest_version("0.12.0.1") == "0.12.0.1"
    assert nearest_version("0.11.9") == "0.11.2"
    assert nearest_version("0.10.3") == "0.10.2"
    assert nearest_version("99") == shipped_versions()[-1]
    assert nearest_version("0.1") == "0.10.2"


def test_without_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(module, "installed_version", module.installed_version.__wrapped__)
    with pytest.raises(UnknownJaxlibError, match="no jaxlib is installed"):
        Catalog.installed()
    with pytest.raises(UnknownJaxlibError):
        parse("--a")


def test_a_library_without_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(b"")
    with pytest.raises(CatalogError, match="is empty"):
        derive("1", path)
    path.write_bytes(b"\x7fELF" * 100)
    with pytest.raises(CatalogError, match=r"no descriptor of xla/xla\.proto"):
        derived_catalog("1", path, tmp_path)


def test_strings_that_could_be_flags(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(b"xla_a\0 xla_b xla_c_1\0--xla_d\0xla_E\0")
    assert flag_like_strings(path) == {"xla_a", "xla_c_1", "xla_d"}


@needs_jaxlib
def test_a_shipped_version_is_answered_from_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    if installed_version() not in shipped_versions():
        monkeypatch.setattr(module, "installed_version", lambda: shipped_versions()[-1])
    monkeypatch.setattr(module, "derived_catalog", None)
    assert Catalog.installed().exact


@needs_jaxlib
def test_another_version_is_derived_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "installed_version", lambda: "0.12.99")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = Catalog.installed()
    assert (first.version, first.exact) == ("0.12.99", False)
    assert all(flag.presumed for flag in first.flags.values())
    assert parse("--xla_dump_to=x", first).ok
    (kept,) = (tmp_path / "xla_flags").iterdir()
    assert "0.12.99" in kept.name
    monkeypatch.setattr(module, "derive", None)
    assert Catalog.installed().flags.keys() == first.flags.keys()
    kept.write_text("{")
    with pytest.raises(TypeError):
        Catalog.installed()


@needs_jaxlib
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert derived_catalog("0.12.99", library(), blocked / "folder").flags


@needs_jaxlib
def test_another_librarys_cache_is_not_used(tmp_path: Path) -> None:
    catalog = derived_catalog("0.12.99", library(), tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "library": "elsewhere", "flags": []}))
    assert derived_catalog("0.12.99", library(), tmp_path).flags.keys() == catalog.flags.keys()


@needs_jaxlib
@pytest.mark.parametrize("nearest", shipped_versions())
def test_what_is_derived_is_what_is_there(nearest: str) -> None:
    """From the catalog of any jaxlib, the flags of the installed one follow, but for a few old ones."""
    if installed_version() not in shipped_versions():
        pytest.skip("this jaxlib's flags were not recorded")
    true = Catalog.for_jaxlib(installed_version())
    derived = Catalog.from_json(derive(true.version, library(), Catalog.for_jaxlib(nearest)))
    assert derived.fields.keys() == true.fields.keys()
    assert len(derived.flags.keys() ^ true.flags.keys()) <= 1
    for name in derived.flags.keys() & true.flags.keys():
        old, new = true.flags[name], derived.flags[name]
        assert (old.kind, old.type, dict(old.words), old.prefix) == (
            new.kind,
            new.type,
            dict(new.words),
            new.prefix,
        )
        assert (old.field and old.field.name) == (new.field and new.field.name)
    for name, field in derived.fields.items():
        assert (field.number, field.type, field.repeated) == (
            true.fields[name].number,
            true.fields[name].type,
            true.fields[name].repeated,
        )
        assert (field.enum and dict(field.enum.numbers)) == (
            true.fields[name].enum and dict(true.fields[name].enum.numbers)
        )
