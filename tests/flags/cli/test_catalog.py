from __future__ import annotations

import json

import pytest

from tests.flags.jaxlibs import needs_jaxlib
from xla_flags import Catalog, shipped_versions
from xla_flags.cli import main


@pytest.mark.parametrize("version", shipped_versions())
def test_a_shipped_table(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", f"--jaxlib={version}", "--format=json"]) == 0
    catalog = Catalog.from_json(json.loads(capsys.readouterr().out))
    assert (catalog.version, [*catalog.flags]) == (version, [*Catalog.for_jaxlib(version).flags])


def test_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog"]) == 0
    assert capsys.readouterr().out.startswith("tables are shipped for jaxlib 0.10.2, 0.11.2, 0.12.0.1\n")


@needs_jaxlib
def test_a_table_made_anew(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from xla_flags import installed, observe

    monkeypatch.setattr(
        observe, "observe_installed", lambda: installed.derive("0.12.0.1", installed.installed_library())
    )
    assert main(["catalog", "--jaxlib-from-env"]) == 0
    made = Catalog.from_json(json.loads(capsys.readouterr().out))
    assert "xla_dump_to" in made.flags
