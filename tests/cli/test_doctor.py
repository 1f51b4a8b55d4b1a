from __future__ import annotations

import json
from pathlib import Path

import pytest

from jax_cmdbuf.api import doctor
from jax_cmdbuf.api.doctor import Finding, Health, Report
from jax_cmdbuf.cli import main

FINE = Report((Finding("versions", Health.OK, "jax [bold] 1"),))
BAD = Report((*FINE.findings, Finding("driver", Health.PROBLEM, "too old", "update it", stops=True)))


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    found: list[Report] = []
    monkeypatch.setattr(doctor, "examine", lambda: found[0])
    return found


@pytest.mark.parametrize(("report", "status"), [(FINE, 0), (BAD, 1)])
def test_the_exit_status_says_whether_it_would_be_effective(
    reports: list[Report], report: Report, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    reports.append(report)
    assert main(["doctor"]) == status
    text = capsys.readouterr().out
    assert "jax [bold] 1" in text
    assert ("would not be effective here, because of: driver" in text) is bool(status)
    assert ("update it" in text) is bool(status)
    assert main(["doctor", "--format", "json"]) == status
    assert json.loads(capsys.readouterr().out) == report.to_json()


def test_the_report_can_go_to_a_file(reports: list[Report], tmp_path: Path) -> None:
    reports.append(BAD)
    assert main(["doctor", "--format=json", "-o", str(tmp_path / "out.json")]) == 1
    assert json.loads((tmp_path / "out.json").read_text()) == BAD.to_json()


def test_misuse_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-such-option"]) == 2
    assert "no-such-option" in capsys.readouterr().err
