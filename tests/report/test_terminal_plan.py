from __future__ import annotations

import dataclasses

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.model import Plan
from jax_cmdbuf.report.terminal_plan import Detail, print_plan
from tests.report.programs import CONTEXT, check_snapshot, kernel, plan_of, printed


def test_the_whole_plan(plan: Plan) -> None:
    check_snapshot("plan.txt", printed(lambda console: print_plan(plan, console)))


def test_a_narrow_terminal_loses_no_name(plan: Plan) -> None:
    text = printed(lambda console: print_plan(plan, console), width=100)
    for word in ("params['w']", "out[1]", "command_buffer_1", "SKIP_PROFILED"):
        assert word in text


def test_warnings_are_loud(executable: Executable) -> None:
    plan = plan_of(executable, dataclasses.replace(CONTEXT, warnings=("the grouping is wrong [maybe]",)))
    text = printed(lambda console: print_plan(plan, console))
    assert "WARNING" in text
    assert "the grouping is wrong [maybe]" in text


def test_what_is_cut_is_counted(executable: Executable) -> None:
    many = tuple(kernel(number, f"fusion.{number}", (0,), (5,)) for number in range(1, 31))
    plan = plan_of(dataclasses.replace(executable, thunks=many))
    short = printed(lambda console: print_plan(plan, console, Detail(commands=5, left_out=5, allocations=2)))
    assert "25 more" in short
    assert "5 more: 0 used by commands, 1 thread-local" in " ".join(short.split())
    full = printed(lambda console: print_plan(plan, console, Detail.full()))
    assert "more:" not in full
    assert "fusion.30" in full


def test_left_out_thunks_are_cut_too(executable: Executable) -> None:
    options = {**executable.debug_options, "xla_gpu_enable_command_buffer": ()}
    plan = plan_of(dataclasses.replace(executable, debug_options=options))
    text = printed(lambda console: print_plan(plan, console, Detail(left_out=3)))
    assert "none: all 7 thunks run one by one" in text
    assert "4 more thunks outside" in text


def test_names_with_markup_are_shown_as_they_are(executable: Executable) -> None:
    context = dataclasses.replace(CONTEXT, arguments=("params['[red]w']", "x"))
    text = printed(lambda console: print_plan(plan_of(executable, context), console))
    assert "params['[red]w']" in text


def test_one_of_a_thing_is_singular(executable: Executable) -> None:
    one = dataclasses.replace(executable, thunks=(kernel(1, "fusion", (), (5,)),))
    options = {**one.debug_options, "xla_gpu_graph_min_graph_size": 1}
    text = printed(
        lambda console: print_plan(plan_of(dataclasses.replace(one, debug_options=options)), console)
    )
    assert "1 with 1 command; 0 of 1 thunk outside" in text
    assert "1 thunk, 1 allocation" in text
    options["xla_gpu_graph_min_graph_size"] = 5
    left = plan_of(dataclasses.replace(one, debug_options=options))
    assert "none: 1 thunk runs by itself" in printed(lambda console: print_plan(left, console))
