from __future__ import annotations

import json

import pytest

from xla_flags import Catalog, FlagKind, parse, shipped_versions
from xla_flags.cli import main
from xla_flags.cli.explain import _READS, explain

NEW = Catalog.for_jaxlib("0.12.0.1")


def test_every_kind_is_explained() -> None:
    assert {*_READS} == {*FlagKind}


@pytest.mark.parametrize("version", shipped_versions())
def test_every_flag_can_be_explained(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    result = parse(None, catalog)
    for name in catalog.flags:
        entry = explain(name, result)
        assert entry["known"]
        assert entry["since"]
        assert entry["value"] == entry["default"]
        json.dumps(entry, allow_nan=False)


def test_with_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["explain", "--format=json", "--jaxlib=0.12", "--xla_gpu_command_buffer_update_mode=SKIP_TEMP"]
    assert main(argv) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["default"], entry["value"]) == ("ALWAYS_UPDATE", "SKIP_TEMP")
    assert entry["values"] == ["ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED"]
    assert (entry["since"], entry["until"]) == ("0.10.0", None)


def test_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["explain", "--jaxlib=0.12", "xla_dump_to", "xla_gpu_graph_level"]) == 0
    printed = capsys.readouterr().out
    assert "xla_dump_to  jaxlib 0.12.0.1\n  takes    string: any text" in printed
    assert "does not change the key" in printed
    assert "  no flag of this release\n  known to jaxlib 0.4.20 to 0.7.0\n" in printed


def test_all_flags_of_a_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        main(["explain", "--format=json", "--jaxlib=0.12", "--xla_dump_to=/d --xla_gpu_autotune_level=1"])
        == 0
    )
    assert [each["flag"] for each in json.loads(capsys.readouterr().out)] == [
        "xla_dump_to",
        "xla_gpu_autotune_level",
    ]
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert main(["explain", "--jaxlib=0.12"]) == 0
    assert capsys.readouterr().out == "there is nothing to explain in XLA_FLAGS, which is not set\n"
