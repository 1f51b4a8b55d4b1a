from __future__ import annotations

from pathlib import Path

import pytest

from jax_cmdbuf.errors import TargetError
from jax_cmdbuf.executable.targets import TARGETS, load_target, parse_target, target_named


@pytest.mark.parametrize("name", TARGETS)
def test_every_shipped_target_is_complete(name: str) -> None:
    target = load_target(name)
    assert target.name == name
    assert target.device.source == f"target {name}"
    assert target.device.runtime_version == target.device.driver_version == (13, 0, 0)
    assert target.compute_capability >= (7, 5)
    assert target.warnings == ()


def test_names_are_read_in_any_case_and_by_file_name() -> None:
    assert load_target("H200").device.name == "NVIDIA H200"
    assert load_target("a100_sxm_80") == load_target("a100_sxm_80")
    assert load_target("rtx").text == load_target("rtx4090").text
    assert load_target("h100").nvlinks == 18
    assert load_target("l4").nvlinks == 0


def test_a_gpu_is_found_by_its_model() -> None:
    assert target_named("NVIDIA H200") == "h200"
    assert target_named("NVIDIA GeForce RTX 4090") == "rtx"
    assert target_named("cpu") is None


def test_a_file_is_a_target_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.txtpb"
    path.write_text(load_target("h200").text.replace('name: "NVIDIA H200"', 'name: "mine"'))
    target = load_target(str(path))
    assert target.name == str(path)
    assert target.device.name == "mine"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        TargetError, match=r"unknown target 'gtx': use one of a100, h100, h200, .*, or the path"
    ):
        load_target("gtx")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TargetError, match="it is not text"):
        load_target(str(path))
    with pytest.raises(TargetError, match="cannot read target"):
        load_target(str(tmp_path))
    path.write_text("gpu_device_info { threads_per_warp 32 }")
    with pytest.raises(TargetError, match=r"is not a text proto: line 1: expected ':'"):
        load_target(str(path))


@pytest.mark.parametrize(
    "field",
    [
        "threads_per_warp",
        "block_dim_limit_x",
        "core_count",
        "threads_per_block_limit",
        "shared_memory_per_block",
        "shared_memory_per_block_optin",
        "cuda_compute_capability",
    ],
)
def test_a_field_xla_dies_without_is_named(field: str) -> None:
    lines = load_target("h200").text.splitlines()
    text = "\n".join(line for line in lines if not line.strip().startswith((f"{field}:", f"{field} ")))
    with pytest.raises(TargetError, match=rf"target mine lacks gpu_device_info\.{field}: without {field} "):
        parse_target(text, name="mine")


def test_an_empty_text_names_every_field() -> None:
    with pytest.raises(TargetError) as caught:
        parse_target("", name="empty")
    assert str(caught.value).count("gpu_device_info.") == 7


def test_a_zero_is_as_good_as_nothing() -> None:
    text = load_target("h200").text.replace("threads_per_warp: 32", "threads_per_warp: 0")
    with pytest.raises(TargetError, match="threads_per_warp"):
        parse_target(text, name="mine")


def test_a_missing_version_is_a_warning() -> None:
    text = load_target("h200").text.replace('driver_version: "13.0.0"', "")
    target = parse_target(text, name="mine")
    assert target.device.driver_version == (0, 0, 0)
    assert target.warnings == (
        "target mine lacks gpu_device_info.driver_version: XLA records no command buffers without it",
    )


def test_a_version_that_is_none_is_refused() -> None:
    text = load_target("h200").text.replace('driver_version: "13.0.0"', 'driver_version: "new"')
    with pytest.raises(TargetError, match=r"driver_version is 'new', not a version such as 13\.0\.0"):
        parse_target(text, name="mine")
