from __future__ import annotations

import dataclasses

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.compare import Comparison, Difference, comparison_as_dict
from jax_cmdbuf.report.model import Plan
from tests.report.programs import CONTEXT, plan_of


def other_plan(executable: Executable) -> Plan:
    """The same program with no command buffers and a bigger temp, numbered differently."""
    options = {**executable.debug_options, "xla_gpu_enable_command_buffer": ()}
    allocations = (*executable.allocations[:5], dataclasses.replace(executable.allocations[5], size=9 << 20))
    context = dataclasses.replace(CONTEXT, xla_flags={"xla_gpu_enable_command_buffer": ()})
    return plan_of(dataclasses.replace(executable, debug_options=options, allocations=allocations), context)


def test_equal_plans_do_not_differ(plan: Plan, executable: Executable) -> None:
    assert Comparison(plan, plan_of(executable), ("", "")).differences == ()


def test_differences_come_from_the_whole_to_the_parts(plan: Plan, executable: Executable) -> None:
    comparison = Comparison(plan, other_plan(executable), ("--a", "--b"))
    assert comparison.differences[:5] == (
        Difference("flag xla_gpu_command_buffer_update_mode", "SKIP_TEMP", "default"),
        Difference("flag xla_gpu_enable_command_buffer", "FUSION", ""),
        Difference("command buffers", "1", "0"),
        Difference("commands in them", "5", "0"),
        Difference("thunks outside", "2", "7"),
    )
    by_name = {each.what: each for each in comparison.differences}
    assert by_name["memory for temporaries"].right == "9 MiB"
    assert by_name["instruction gemm_fusion"].left == "in a command buffer"
    assert by_name["instruction gemm_fusion"].right.startswith("outside: ")
    assert (
        "instruction fft" not in by_name
        or by_name["instruction fft"].left != by_name["instruction fft"].right
    )
    assert by_name["allocation x"].left == "3 MiB, 1 commands, dynamic/dynamic/candidate"


def test_what_only_one_side_has_is_a_dash_on_the_other(plan: Plan, executable: Executable) -> None:
    fewer = plan_of(dataclasses.replace(executable, thunks=executable.thunks[:5]))
    differences = {each.what: each for each in Comparison(plan, fewer, ("", "")).differences}
    assert differences["instruction last_fusion"].right == "—"


def test_as_data(plan: Plan, executable: Executable) -> None:
    data = comparison_as_dict(Comparison(plan, other_plan(executable), ("--a", "--b")))
    assert data["labels"] == ["--a", "--b"]
    assert data["differences"][2] == {"what": "command buffers", "left": "1", "right": "0"}
    assert [each["module"] for each in data["plans"]] == ["jit_step", "jit_step"]
