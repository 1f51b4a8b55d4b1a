from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from xla_flags.cli import main

DATA = Path(__file__).parents[2] / "data" / "flags"


def test_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "--format=json", "--jaxlib=0.12", "--", "--xla_gpu_autotune_level=2"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "jaxlib": "0.12.0.1",
        "outcome": "ok",
        "message": None,
        "changed": {"xla_gpu_autotune_level": 2},
    }
    assert (
        main(["parse", "--jaxlib=0.12", "--jaxlib=0.10.2", "--xla_gpu_command_buffer_update_mode=SKIP_TEMP"])
        == 1
    )
    new, old = map(json.loads, capsys.readouterr().out.splitlines())
    assert new["changed"] == {"xla_gpu_command_buffer_update_mode": "SKIP_TEMP"}
    assert (old["outcome"], old["message"], old["changed"]) == ("usage_error", "Flag parsing failed.", None)


@pytest.mark.parametrize("version", ["0.10.2", "0.12.0.1"])
def test_recorded_verdicts(
    version: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A part of the recordings, through the command, as a shell would hand them over."""
    monkeypatch.chdir(tmp_path)
    lines = gzip.decompress((DATA / f"jaxlib-{version}.jsonl.gz").read_bytes()).splitlines()
    for record in map(json.loads, lines[::40]):
        if record.get("unset") or not record["xla_flags"] or record.get("files"):
            continue
        status = main(["parse", "--format=json", f"--jaxlib={version}", "--", record["xla_flags"]])
        printed = json.loads(capsys.readouterr().out)
        assert printed == {
            "jaxlib": version,
            **{key: record[key] for key in ("outcome", "message", "changed")},
        }
        assert status == (0 if record["outcome"] == "ok" else 1)


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "--format=text", "--jaxlib=0.12", "--", "--xla_gpu_autotune_level=2"]) == 0
    assert capsys.readouterr().out == "jaxlib 0.12.0.1: ok\n  xla_gpu_autotune_level = 2\n"


def test_files_and_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "flags.txt").write_text("--xla_dump_to=/d\n")
    monkeypatch.chdir(tmp_path)
    assert main(["parse", "--jaxlib=0.12", "flags.txt"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == {"xla_dump_to": "/d"}
    monkeypatch.setenv("XLA_FLAGS", "--bogus")
    assert main(["parse", "--jaxlib=0.12"]) == 1
    assert json.loads(capsys.readouterr().out)["message"] == "Unknown flag in XLA_FLAGS: --bogus"
