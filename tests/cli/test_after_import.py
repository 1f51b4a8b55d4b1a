"""A call after the first import of a module, by whichever spelling."""

from __future__ import annotations

import importlib
import sys

import pytest

from jax_cmdbuf.cli.after_import import after_import


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that can be imported and is not yet; its name."""
    folder = tmp_path / "some_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1\n")
    (folder / "inner.py").write_text("from some_package import value\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "some_package"
    for name in [name for name in sys.modules if name.startswith("some_package")]:
        del sys.modules[name]


@pytest.mark.parametrize("what", ["some_package", "some_package.inner"])
def test_it_is_called_once_after_the_module_is_loaded(package, what):
    seen = []
    with after_import(package, lambda: seen.append(sys.modules[package].value)):
        assert seen == []
        importlib.import_module(what)
        assert seen == [1]
        importlib.import_module("some_package.inner")
    assert seen == [1]


def test_the_importing_code_sees_what_was_changed(package):
    def change():
        sys.modules[package].value = 2

    with after_import(package, change):
        namespace = {}
        exec("from some_package import value", namespace)
    assert namespace["value"] == 2


def test_the_module_is_as_ever(package):
    with after_import(package, lambda: None):
        module = importlib.import_module(package)
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert vars(module.__loader__).keys() == {"name", "path"}
    assert module.__spec__.loader is module.__loader__


def test_a_module_that_is_there_is_told_at_once():
    seen = []
    with after_import("json", lambda: seen.append(1)):
        assert seen == [1]


def test_nothing_stays_behind(package):
    before = list(sys.meta_path)
    with after_import(package, lambda: None):
        pass
    assert sys.meta_path == before
    with pytest.raises(ZeroDivisionError), after_import(package, lambda: None):
        1 / 0  # noqa: B018
    assert sys.meta_path == before


def test_a_module_that_is_not_there(package):
    with (
        after_import("no_such_package", lambda: None),
        pytest.raises(ModuleNotFoundError, match="no_such_package"),
    ):
        importlib.import_module("no_such_package")


def test_a_module_that_fails_is_not_told(package, tmp_path):
    (tmp_path / "some_package" / "__init__.py").write_text("1 / 0\n")
    seen = []
    with after_import(package, lambda: seen.append(1)), pytest.raises(ZeroDivisionError):
        importlib.import_module(package)
    assert seen == []
