from __future__ import annotations

import json

import pytest

from xla_flags import Catalog
from xla_flags.cli import main
from xla_flags.cli.listing import matching

NEW = Catalog.for_jaxlib("0.12.0.1")


def test_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:  # B29
    assert main(["list", "--format=json", "--jaxlib=0.12"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [each["flag"] for each in entries] == sorted(NEW.flags)
    assert len(entries) == 350


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("", 350),
        ("graph_level", 0),
        ("xla_gpu_command_buffer_*_mode", 2),
        ("--xla_dump_to", 1),
        ("UPDATE_MODE", 1),
    ],
)
def test_patterns(pattern: str, count: int) -> None:  # B28: what is only in the binary is no flag
    assert len(matching(NEW, pattern)) == count


def test_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["list", "--jaxlib=0.12", "update_mode"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "jaxlib 0.12.0.1: 1 of 350 flags with 'update_mode' in their name"
    assert "ALWAYS_UPDATE | SKIP_TEMP | SKIP_PROFILED" in lines[2]
    assert main(["list", "--jaxlib=0.12", "zzz"]) == 1
