from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jax_cmdbuf
from jax_cmdbuf.cli import main
from jax_cmdbuf.cli import plan as plan_verb
from jax_cmdbuf.errors import CompileError

ROOT = Path(jax_cmdbuf.__file__).parents[1]


def failing_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(plan_verb, "run", run)


def test_help_lists_the_verbs_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "usage: jax-cmdbuf" in out
    assert "plan" in out
    assert plan_verb.HELP.split(",")[0] in " ".join(out.split())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"jax-cmdbuf {jax_cmdbuf.__version__}\n"


@pytest.mark.parametrize("words", [[], ["no-such-verb"], ["plan"], ["plan", "x", "--format=pdf"]])
def test_misuse_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: jax-cmdbuf" in capsys.readouterr().err


def test_our_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing_with(monkeypatch, CompileError("one\n sentence"))
    assert main(["plan", "x"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "jax-cmdbuf: one sentence\n"


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failing_with(monkeypatch, KeyboardInterrupt())
    assert main(["plan", "x"]) == 130
    assert capsys.readouterr().err == "jax-cmdbuf: interrupted\n"


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_with(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["plan", "x"])


def test_python_m_is_the_same_command_and_a_closed_pipe_no_error() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "flags")])}
    executable = ROOT / "tests/data/va_remap/mlp_same/executable.bin.gz"
    command = f"{sys.executable} -m jax_cmdbuf plan {executable} --format=json | head -c 11"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, '{\n "module"', "")


def test_help_imports_neither_jax_nor_protobuf() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "flags")])}
    code = (
        "import sys; from jax_cmdbuf.cli import main; main(['plan', '--help']);"
        "print({'jax', 'jaxlib', 'numpy', 'google.protobuf'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == "set()\n"
