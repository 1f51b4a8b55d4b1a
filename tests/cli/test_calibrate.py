"""``jax-cmdbuf calibrate``: one sentence without a GPU; table and JSON with one."""

from __future__ import annotations

import json

import pytest

from jax_cmdbuf.cli.entry import main
from jax_cmdbuf.runtime.calibration import MEASURED, Calibration, load_calibration


@pytest.fixture
def measured(monkeypatch):
    calibration = Calibration("NVIDIA Test", "13.0", "0.12.0.1", dict.fromkeys(MEASURED, 1234.5))
    monkeypatch.setattr("jax_cmdbuf.api.calibrate.calibrate", lambda tell: calibration)
    return calibration


def test_without_a_gpu(capsys):
    assert main(["calibrate"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("jax-cmdbuf: calibrate measures a CUDA GPU")
    assert captured.err.count("\n") == 1


def test_table_and_file(measured, capsys, tmp_path):
    path = tmp_path / "here.json"
    assert main(["calibrate", "--output", str(path)]) == 0
    out = capsys.readouterr().out
    assert "NVIDIA Test, driver 13.0, jaxlib 0.12.0.1" in out
    assert "1,234.50" in out
    assert load_calibration(path) == measured


def test_json(measured, capsys):
    assert main(["calibrate", "--format=json"]) == 0
    assert json.loads(capsys.readouterr().out) == measured.to_json()
