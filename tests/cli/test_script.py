"""A script runs as under ``python``: what it sees, what it prints, how it ends."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile

import pytest

from jax_cmdbuf.cli.script import Script, run_script
from jax_cmdbuf.errors import InputError

SEEN = """
import pickle, sys, threading
class Class: pass
print(sys.argv, __name__, __file__, sys.path[0], sys.modules["__main__"].__file__)
print(pickle.loads(pickle.dumps(Class())).__class__ is Class, __spec__ and __spec__.name, __package__ or "")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    for name in ("", "inner/"):
        (tmp_path / f"pack/{name}__init__.py").write_text("")
    (tmp_path / "pack/__main__.py").write_text(SEEN)
    (tmp_path / "pack/inner/module.py").write_text(SEEN)
    (tmp_path / "seen.py").write_text(SEEN)
    (tmp_path / "link.py").symlink_to(tmp_path / "pack/inner/module.py")
    with zipfile.ZipFile(tmp_path / "archive.pyz", "w") as archive:
        archive.writestr("__main__.py", SEEN)
    importlib.invalidate_caches()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "pack"]:
        del sys.modules[name]


def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ("seen.py", "a", "--b", "-m"),
        ("./seen.py",),
        ("pack/inner/module.py",),
        ("link.py", "x"),
        ("-m", "pack", "x"),
        ("-m", "pack.inner.module", "--y"),
        ("archive.pyz", "z"),
        ("pack", "z"),
    ],
)
def test_a_script_sees_what_it_sees_under_python(folder, capsys, words):
    is_module = words[0] == "-m"
    name, *arguments = words[1:] if is_module else words
    before = list(sys.argv), list(sys.path), sys.modules["__main__"]
    end = run_script(Script(name, is_module, tuple(arguments)))
    assert (end.outcome, end.status) == ("finished", 0)
    assert capsys.readouterr().out == python(*words).stdout
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


@pytest.mark.parametrize(
    ("code", "outcome", "detail", "status"),
    [
        ("import sys; sys.exit()", "finished", "", 0),
        ("import sys; sys.exit(0)", "finished", "", 0),
        ("import sys; sys.exit(7)", "exited", "exit status 7", 7),
        ("import sys; sys.exit(-1)", "exited", "exit status 255", 255),
        ("import sys; sys.exit('no\\nway')", "exited", "exit status 1", 1),
        ("def f():\n  return {}['k']\nf()", "failed", "KeyError: 'k'", 1),
        ("x = (", "failed", "SyntaxError: '(' was never closed (bad.py, line 1)", 1),
        (
            "try:\n  1 / 0\nexcept ZeroDivisionError as e:\n  raise OSError('a\\nb') from e",
            "failed",
            "OSError: a",
            1,
        ),
        ("class Odd(BaseException): pass\nraise Odd", "failed", "Odd", 1),
    ],
)
def test_how_a_script_ends(folder, capsys, code, outcome, detail, status):
    (folder / "bad.py").write_text(code)
    end = run_script(Script("bad.py", False))
    assert (end.outcome, end.detail, end.status) == (outcome, detail, status)
    assert end.took_us > 0
    reference = python("bad.py")
    assert capsys.readouterr().err == reference.stderr
    assert reference.returncode == status


def test_an_interrupt_ends_with_its_traceback_and_130(folder, capsys):
    (folder / "bad.py").write_text("raise KeyboardInterrupt")
    end = run_script(Script("bad.py", False))
    assert (end.outcome, end.detail, end.status) == ("interrupted", "KeyboardInterrupt", 130)
    assert capsys.readouterr().err == python("bad.py").stderr


def test_threads_are_waited_for_and_still_have_their_main_module(folder, capsys):
    code = """
import sys, threading
go = threading.Event()
value = "late"
def later():
    go.wait()
    print(sys.modules["__main__"].value)
threading.Thread(target=later).start()
threading.Timer(0, go.set).start()
print("main is done")
"""
    (folder / "threads.py").write_text(code)
    (folder / "pack/threads.py").write_text(code)
    for script in (Script("threads.py", False), Script("pack.threads", True)):
        assert run_script(script).status == 0
        assert sorted(capsys.readouterr().out.split("\n")) == ["", "late", "main is done"]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (Script("none.py", False), "there is no script none.py"),
        (Script("none", True), "cannot run the module none: there is no none"),
        (Script("pack.none", True), "cannot run the module pack.none: there is no pack.none"),
        (Script("none.deep", True), "cannot run the module none.deep: No module named 'none'"),
        (Script("pack.inner", True), "cannot run the module pack.inner: there is no pack.inner.__main__"),
        (Script(".x", True), "cannot run the module .x"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(folder, script, text):
    before = list(sys.path)
    with pytest.raises(InputError) as caught:
        script.check()
    assert str(caught.value).startswith(text)
    assert sys.path == before


def test_its_command_line():
    assert Script("a.py", False, ("x",)).command == ("a.py", "x")
    assert Script("a.b", True, ("x",)).command == ("-m", "a.b", "x")
