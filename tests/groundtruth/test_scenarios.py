"""Every recorded loop, run on the CPU, predicts what XLA did on a GPU: transition, filters, commands skipped.

Once with the executable that was recorded as the plan, once with one that was compiled without a GPU by
another jaxlib (``tools/compile_scenarios.py`` made those). docs/simulation.md explains each miss.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.groundtruth.scenario_runs import RECORDINGS, names, predicted, recorded

PLANS = {"recorded": "executable.bin.gz", "deviceless": "deviceless.bin.gz"}
AT_LEAST = {"recorded": 32, "deviceless": 26}
# Where the prediction is known to differ.
MISSES = {
    "recorded": {"train_hostbatch"},
    "deviceless": {
        "big_sizes",
        "real_cnn_sgd_donate",
        "real_transformer_infer_rotate",
        "train_hostbatch",
    },
}


@cache
def agrees(name: str, plan: str) -> bool:
    file = RECORDINGS / name / PLANS[plan]
    return file.exists() and predicted(name, file) == recorded(name)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", names())
def test_a_loop_predicts_what_was_recorded(name: str, plan: str) -> None:
    assert agrees(name, plan) is (name not in MISSES[plan])


def test_enough_agree(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(name, *("agrees" if agrees(name, plan) else "differs" for plan in PLANS)) for name in names()]
    with capsys.disabled():
        print(
            "\n"
            + "\n".join(f"{name:32}{first:12}{second}" for name, first, second in [("loop", *PLANS), *rows])
        )
    for plan, least in AT_LEAST.items():
        assert sum(agrees(name, plan) for name in names()) >= least


def test_the_loops_are_those_that_were_recorded() -> None:
    assert len(names()) == 35
    assert all((Path(RECORDINGS) / name / "SKIP_PROFILED.json.gz").exists() for name in names())
