from __future__ import annotations

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.compare import Comparison
from jax_cmdbuf.report.model import Plan
from jax_cmdbuf.report.terminal_compare import print_comparison
from jax_cmdbuf.report.terminal_plan import Detail
from tests.report.programs import check_snapshot, plan_of, printed
from tests.report.test_compare import other_plan


def test_differences_first(plan: Plan, executable: Executable) -> None:
    comparison = Comparison(plan, other_plan(executable), ("", "--xla_gpu_enable_command_buffer="))
    check_snapshot("comparison.txt", printed(lambda console: print_comparison(comparison, console)))


def test_equal_plans_say_so(plan: Plan, executable: Executable) -> None:
    comparison = Comparison(plan, plan_of(executable), ("--a", "--b"))
    assert "The two plans are the same." in printed(lambda console: print_comparison(comparison, console))


def test_what_is_cut_is_counted(plan: Plan, executable: Executable) -> None:
    comparison = Comparison(plan, other_plan(executable), ("", ""))
    total = len(comparison.differences)
    text = printed(lambda console: print_comparison(comparison, console, Detail(allocations=3)))
    assert f"{total - 3} more" in text
