from __future__ import annotations

import json

import pytest

from tests.flags.jaxlibs import needs_jaxlib
from xla_flags import Catalog
from xla_flags.cli import main

LEVEL = "--xla_gpu_autotune_level"


def test_two_sets_of_flags(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["diff", "--jaxlib=0.12", f"{LEVEL}=2", f"{LEVEL}=3 --xla_dump_to=/d"]
    assert main([*argv, "--format=json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"] == [
        {"field": "xla_dump_to", "a": "", "b": "/d", "default": ""},
        {"field": "xla_gpu_autotune_level", "a": 2, "b": 3, "default": 4},
    ]
    monkeypatch.setenv("COLUMNS", "100")
    assert main(argv) == 1
    assert ["xla_dump_to", "(empty)", "/d", "(empty)"] in map(str.split, capsys.readouterr().out.splitlines())


def test_other_text_with_the_same_effect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--jaxlib=0.12", f"{LEVEL}=4", ""]) == 0
    assert main(["diff", "--jaxlib=0.12", f"{LEVEL}=2 {LEVEL}=' 3'", f"{LEVEL}=3"]) == 0
    assert capsys.readouterr().out == "jaxlib 0.12.0.1: no difference in effect\n" * 2


def test_flags_that_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--jaxlib=0.12", "--bogus", ""]) == 1
    assert capsys.readouterr().out == "A would end the process: Unknown flag in XLA_FLAGS: --bogus\n"


@needs_jaxlib
def test_a_release_and_the_one_here(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", "--format=json", "0.10", "installed"])
    found = json.loads(capsys.readouterr().out)
    assert (found["a"], found["b"]) == ("0.10.2", Catalog.installed().version)


def test_two_releases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--format=json", "0.10.2", "0.12"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["a"], found["b"]) == ("0.10.2", "0.12.0.1")
    assert "xla_gpu_experimental_enable_nvshmem" in found["gone"]
    assert len(found["gone"]) == 12
    assert "xla_gpu_enable_pdl_launch" in found["new"]
    assert {
        "flag": "xla_gpu_command_buffer_update_mode",
        "what": "values",
        "a": "NEVER_UPDATE, CAPTURE_CMD_NEVER_UPDATE",
        "b": "SKIP_TEMP, SKIP_PROFILED",
    } in found["changed"]
    assert main(["diff", "0.12", "0.12.0.1"]) == 0
    assert "0 changes" in capsys.readouterr().out
    assert main(["diff", "0.10.2", "0.12"]) == 1
    assert "12 flags gone in 0.12.0.1" in capsys.readouterr().out
