from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest
from rich.console import Console

from jax_cmdbuf.cli.output import print_rich, progress, write_output
from jax_cmdbuf.errors import InputError


def test_a_file_appears_whole_with_ordinary_rights(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    write_output("new\n", str(path))
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("name", ["no/such/folder/plan.json", "."])
def test_a_file_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"^cannot write {name}: "):
        write_output("text", name)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_output("\ud800", str(path))
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.txt"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_output("text\n", str(path))
        assert os.read(reader, 100) == b"text\n"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_output("new", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_without_a_file_it_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    write_output("text\n", None)
    print_rich(lambda console: console.print("[bold]more[/]"), None)
    assert capsys.readouterr().out == "text\nmore\n"


def test_rich_output_in_a_file_has_no_colours(tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    print_rich(lambda console: console.print("[bold red]text[/]"), str(path))
    assert path.read_text() == "text\n"


def test_a_pipe_is_wide_unless_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    widths = []
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rich(lambda console: widths.append(console.width), None)
    monkeypatch.setenv("COLUMNS", "60")
    print_rich(lambda console: widths.append(console.width), None)
    assert widths == [140, 60]


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working"):
        pass
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_progress_goes_to_stderr_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert Console(stderr=True).is_terminal
    with progress("working"):
        pass
    assert "working" in terminal.getvalue()
