from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog
from xla_flags.nearest import CLEAR, MAX_LENGTH, nearest

FLAGS = tuple(Catalog.for_jaxlib("0.12.0.1").flags)


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("xla_gpu_autotune_levl", "xla_gpu_autotune_level"),
        ("xla_gpu_level_autotune", "xla_gpu_autotune_level"),
        ("gpu_autotune_level", "xla_gpu_autotune_level"),
        ("xla_gpu_enable_commandbuffer", "xla_gpu_enable_command_buffer"),
        ("xla_gpu_enable_latency_hiding_schedular", "xla_gpu_enable_latency_hiding_scheduler"),
        ("xla_dump_hlo_text", "xla_dump_hlo_as_text"),
    ],
)
def test_misspelt_names_are_found(name: str, best: str) -> None:
    assert nearest(name, FLAGS)[0][1] == best


@pytest.mark.parametrize("name", ["", "x", "bogus", "xla_gpu_zzz", "q" * (MAX_LENGTH + 1)])
def test_names_that_resemble_nothing(name: str) -> None:
    assert nearest(name, FLAGS) == []


@given(st.sampled_from(FLAGS), st.data())
def test_one_letter_left_out_is_found_again(name: str, data: st.DataObject) -> None:
    index = data.draw(st.integers(min(8, len(name) - 1), len(name) - 1))
    found = nearest(name[:index] + name[index + 1 :], FLAGS, 5)
    assert name in [each for _, each in found]


def test_scores_fall_and_equality_is_one() -> None:
    found = nearest("xla_gpu_enable_command_buffer", FLAGS)
    assert found[0] == (1.0, "xla_gpu_enable_command_buffer")
    assert [score for score, _ in found] == sorted((score for score, _ in found), reverse=True)
    assert found[0][0] > CLEAR
