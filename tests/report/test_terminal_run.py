"""What a person reads after a run."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from jax_cmdbuf.report.run_model import ArgumentUse, RunReport
from jax_cmdbuf.report.terminal_run import RunDetail, print_run
from tests.report.runs import PROCESS, function, report


def text_of(made, detail=None, width=200):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_run(made, console, detail or RunDetail())
    return console.file.getvalue()


def lines_with(text, word):
    return [" ".join(line.split()) for line in text.splitlines() if word in line]


def test_function_phase_persistent_set_updates_and_allocations():
    text = text_of(report(function("two_gemm_drop")))
    assert lines_with(text, "finished") == ["train.py --fast finished after 2.5 s, 1 cpu (cpu)"]
    assert "two_gemm_drop  8 executions on device 0 (simulated h200), SKIP_PROFILED: active" in text
    assert lines_with(text, "persistent") == [
        "persistent allocations: 4 of 5 (80 %), 8 MiB reserved for 4 of them"
    ]
    assert "commands updated per step: 3 of 4 (75 %), in 4 executions after the first recording" in text
    assert lines_with(text, "rejected")[0] == (
        "result[] 65,536 3 7 of 7 rejected its address changed while it was observed pPPuuuuu"
    )
    assert "→ reuse result result[]: memory of its own" in text
    assert "[commands: 3 of 4 (75 %)]" in text


def test_hazards_are_marked():
    assert "! error: 4 executions would fail on the GPU" in text_of(report(function("shared_param_late")))


def test_the_allocations_that_matter_come_first_and_the_rest_is_counted():
    made = report(function("train_nodonate"))
    text = text_of(made)
    assert "and 23 more (--full)" in text
    full = text_of(made, RunDetail.full())
    assert "--full" not in full
    assert len(full.splitlines()) > len(text.splitlines()) + 20


def test_devices_and_processes_that_did_the_same_are_one_block():
    first = function("two_gemm_drop")
    functions = [dataclasses.replace(first, process=p, device=4 * p + d) for p in (0, 1) for d in range(3)]
    processes = tuple(dataclasses.replace(PROCESS, index=index, count=3) for index in (0, 1))
    text = text_of(RunReport(processes, tuple(functions)))
    assert "on devices 0 to 2 of process 0 and devices 4 to 6 of process 1" in text
    assert text.count("commands updated per step") == 1
    assert "process 1 of 3 on here" in text
    assert "reports of process 2 are missing" in text


def test_functions_without_command_buffers_share_a_line():
    small = dataclasses.replace(function("two_gemm_drop"), commands=0, calls=1)
    text = text_of(report(small, dataclasses.replace(small, signature=1, calls=7)))
    assert (
        "nothing is updated: two_gemm_drop (1 execution), two_gemm_drop (signature 1) (7 executions)" in text
    )
    assert "persistent" not in text


def test_how_the_script_ended_and_what_was_warned_about():
    text = text_of(
        report(outcome="failed", detail="ValueError: no", notes=("f runs, but is not simulated: x",))
    )
    assert "failed (ValueError: no) after 2.5 s" in text
    assert "! f runs, but is not simulated: x" in text


def test_nothing_was_observed():
    assert "no jitted function was observed: decorate one" in text_of(RunReport((PROCESS,)))


def test_text_of_the_program_is_no_markup():
    uses = {1: ArgumentUse(calls=8, same_as="[red]x")}
    text = text_of(report(function("shared_param", uses=uses), command=("[bold]a.py",)))
    assert "[bold]a.py" in text
    assert "one buffer with [red]x" in text
