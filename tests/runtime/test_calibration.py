"""Calibrations as files: round trips, damage, and the ones that come with the package."""

from __future__ import annotations

import json

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.runtime.calibration import MEASURED, Calibration, load_calibration, shipped_calibration


@pytest.fixture
def calibration():
    costs = {name: float(number) for number, name in enumerate(MEASURED)}
    return Calibration("NVIDIA Test", "13.0", "0.12.0.1", costs)


def test_a_written_calibration_reads_the_same(calibration, tmp_path):
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(calibration.to_json()))
    assert load_calibration(path) == calibration
    assert calibration["cuMemAddressFree"] == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data["microseconds"].pop("launch"), r"lacks launch; run jax-cmdbuf calibrate again"),
        (lambda data: data["microseconds"].update(launch=-1), r"says launch costs -1"),
        (lambda data: data["microseconds"].update(launch="x"), r"is no calibration \(ValueError"),
        (lambda data: data["microseconds"].update(lunch=1), r"says lunch costs 1"),
        (lambda data: data.update(version=2), r"of version 2, this release reads 1"),
        (lambda data: data.pop("gpu"), r"is no calibration \(KeyError: 'gpu'\)"),
        (lambda data: data.update(microseconds=[1]), r"is no calibration \(AttributeError"),
    ],
)
def test_damage_is_one_sentence(calibration, tmp_path, change, text):
    data = calibration.to_json()
    change(data)
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=text):
        load_calibration(path)


def test_other_files(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        load_calibration(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("[")
    with pytest.raises(InputError, match=r"text.json is no calibration \(JSONDecodeError"):
        load_calibration(tmp_path / "text.json")


def test_an_unknown_gpu():
    with pytest.raises(InputError, match=r"no calibration of abacus comes with this package \(there is: "):
        shipped_calibration("abacus")


def test_the_h200_s_comes_with_the_package():
    shipped = shipped_calibration()
    assert (shipped.gpu, shipped.jaxlib) == ("NVIDIA H200", "0.11.2")
    assert shipped["native.update"] < shipped["cuMemMap"] < shipped["cuMemSetAccess"]
