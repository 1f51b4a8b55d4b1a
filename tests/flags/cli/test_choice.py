from __future__ import annotations

import pytest

from xla_flags import Catalog, UnknownJaxlibError, shipped_versions
from xla_flags.cli.choice import Choice, choose


def chosen(*names: str) -> list[str]:
    return [each.catalog.version for each in choose(names)]


def test_names_of_releases() -> None:
    assert chosen("0.10.2") == ["0.10.2"]
    assert chosen("0.12") == ["0.12.0.1"]
    assert chosen("jaxlib==0.11") == ["0.11.2"]
    assert chosen("all", "0.12") == list(shipped_versions())
    with pytest.raises(UnknownJaxlibError, match="known are 0"):
        choose(["0.1"])


def missing() -> Catalog:
    raise UnknownJaxlibError("none")


def test_without_a_jaxlib_the_newest_is_taken_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Catalog, "installed", staticmethod(missing))
    (choice,) = choose([])
    assert choice.title == f"jaxlib {shipped_versions()[-1]} (newest known; no jaxlib is installed)"
    with pytest.raises(UnknownJaxlibError):
        choose(["installed"])


def test_the_installed_one_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Catalog.for_jaxlib("0.10.2")
    monkeypatch.setattr(Catalog, "installed", staticmethod(lambda: old))
    assert [each.title for each in choose([])] == ["jaxlib 0.10.2 (installed)"]
    assert choose(["0.10.2"]) == (Choice(old, ""),)
