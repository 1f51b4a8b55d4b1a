"""Advice from forecasts: worth it, not worth it, and what the caller could change."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_cmdbuf.api.advisor import advise
from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.runtime.calibration import MEASURED, Calibration
from jax_cmdbuf.runtime.forecast import Advice, CallerHabits
from xla_flags.options import CommandBufferUpdateMode as Mode

RECORDED = Path(__file__).parents[1] / "data" / "va_remap"


def costs(**changed: float) -> Calibration:
    named = {name.replace("_", "."): cost for name, cost in changed.items()}
    return Calibration("NVIDIA Test", "13.0", "0.11.2", dict.fromkeys(MEASURED, 1.0) | named)


def look(name: str, calibration: Calibration, habits: CallerHabits | None = None) -> Advice:
    executable = Executable.from_file(RECORDED / name / "executable.bin.gz")
    return advise(executable, convert(executable, device=load_target("h200").device), calibration, habits)


def test_temporaries_that_swap_places_are_worth_a_mode() -> None:
    advice = look("mlp_same", costs(), CallerHabits(keeps_results=False))
    assert (advice.mode, advice.saves) == (Mode.SKIP_TEMP, 16)
    assert advice.verdict == "SKIP_TEMP is forecast to save 16 µs of host time per step over ALWAYS_UPDATE"
    # If results are kept, they alone make XLA update nearly every command.
    assert not advice.is_sure


def test_a_saving_within_the_error_is_none() -> None:
    advice = look("mlp_same", costs())
    assert advice.mode is Mode.ALWAYS_UPDATE
    assert advice.verdict == "no mode is forecast to beat ALWAYS_UPDATE for this caller"
    assert set(advice.forecasts) == {Mode.ALWAYS_UPDATE, Mode.SKIP_TEMP, Mode.SKIP_PROFILED}


def test_where_other_things_cost_the_time_it_says_so() -> None:
    advice = look("mlp_same", costs(dispatch_call=10_000.0))
    assert "of a step's host time: no update mode will help much" in advice.verdict
    assert "one command" in look("single_kernel", costs()).verdict


def test_dropping_results_in_time_is_a_hint() -> None:
    (hint,) = look("attn_block", costs(native_update=10.0)).hints[:1]
    assert hint.startswith("drop a call's results before the next call (del out): ")


def test_a_program_without_command_buffers() -> None:
    executable = Executable.from_file(RECORDED / "mlp_same" / "executable.bin.gz")
    options = {**executable.debug_options, "xla_gpu_graph_min_graph_size": 1000}
    executable = type(executable)(**{**vars(executable), "debug_options": options})
    advice = advise(executable, convert(executable, device=load_target("h200").device), costs())
    assert advice.verdict.startswith("XLA makes no command buffer of this program")


def test_unknown_leaves_are_refused() -> None:
    with pytest.raises(InputError, match=r"jit_mlp_same has 9 parameter leaves, so there is no leaf 9"):
        look("mlp_same", costs(), CallerHabits(frozenset({9})))
