from __future__ import annotations

import dataclasses

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.thunks import Thunk, ThunkKind
from jax_cmdbuf.report.model import RESERVATION_GRANULARITY, Plan, PlanContext, recorded_thunks, visible
from jax_cmdbuf.runtime.policy import AllocationRole
from tests.report.programs import kernel, plan_of
from xla_flags.options import CommandBufferUpdateMode

ALWAYS, TEMP, PROFILED = (
    CommandBufferUpdateMode.ALWAYS_UPDATE,
    CommandBufferUpdateMode.SKIP_TEMP,
    CommandBufferUpdateMode.SKIP_PROFILED,
)


def test_allocations_are_named_by_path_and_kind(plan: Plan) -> None:
    assert [(row.kind, row.path, row.results) for row in plan.allocations] == [
        ("parameter", "params['w']", ("out[0]['w']",)),
        ("parameter", "x", ()),
        ("output", "out[1]", ("out[1]",)),
        ("output", "out", ("out",)),
        ("constant", "buffer_for_constant_1", ()),
        ("temp", None, ()),
        ("thread-local", None, ()),
    ]
    assert [row.is_donated for row in plan.allocations] == [True, *[False] * 6]


def test_without_given_paths_the_executables_own_are_used(executable: Executable) -> None:
    plan = plan_of(executable, PlanContext("the target"))
    assert [row.path for row in plan.allocations[:4]] == ["p__w__.1", "x.1", "out[1]", "out"]
    with_metadata = dataclasses.replace(executable, parameter_paths=("p['w']", ""))
    assert [row.path for row in plan_of(with_metadata, PlanContext("t")).allocations[:2]] == ["p['w']", "x.1"]
    nameless = dataclasses.replace(executable, parameter_names=())
    assert plan_of(nameless, PlanContext("t")).allocations[1].path == "parameter 1"


def test_a_single_result_is_out(executable: Executable) -> None:
    single = dataclasses.replace(
        executable, outputs=(dataclasses.replace(executable.outputs[2], shape_index=()),)
    )
    plan = plan_of(single, PlanContext("t"))
    assert plan.allocations[2].results == ("out",)


def test_labels_name_each_place_once(plan: Plan) -> None:
    assert [row.label for row in plan.allocations] == [
        "params['w'] → out[0]…",
        "x",
        "out[1]",
        "out",
        "buffer_for_constant_1",
        "gemm_fusion, loop_fusion.1",
        "add",
    ]
    many = dataclasses.replace(plan.allocations[5], values=("a", "b", "c", "d"))
    assert many.label == "a, b, c, … 4 values"
    renamed = dataclasses.replace(plan.allocations[0], path="state.w[0]", results=("out.w[0]", "out[1]"))
    assert renamed.label == "state.w[0] → out… → out[1]"
    assert dataclasses.replace(renamed, results=("state.w[0]",)).label == "state.w[0]"


def test_commands_are_counted_per_allocation(plan: Plan) -> None:
    assert plan.command_count == 5
    assert [row.commands for row in plan.allocations] == [2, 1, 4, 0, 1, 4, 0]
    assert plan.allocations[5].instructions[:2] == ("gemm_fusion", "loop_fusion")
    assert plan.allocations[5].values == ("gemm_fusion", "loop_fusion.1")
    assert recorded_thunks(plan) == {1, 2, 3, 4, 5}


def test_each_mode_has_its_classes(plan: Plan) -> None:
    roles = {mode: [row.verdicts[mode].role for row in plan.allocations] for mode in (ALWAYS, TEMP, PROFILED)}
    constant, remapped, candidate, dynamic = AllocationRole
    assert roles[ALWAYS] == [dynamic] * 4 + [constant] + [dynamic] * 2
    assert roles[TEMP] == [dynamic] * 4 + [constant, remapped, dynamic]
    assert roles[PROFILED] == [candidate] * 3 + [dynamic, constant, remapped, dynamic]
    assert plan.effective_mode is TEMP


def test_summaries_count_updates_and_reserved_addresses(plan: Plan) -> None:
    always, temp, profiled = (plan.summary(mode) for mode in (ALWAYS, TEMP, PROFILED))
    assert [each.updated_if_outputs_move for each in (always, temp, profiled)] == [4, 4, 4]
    assert [each.updated_at_worst for each in (always, temp, profiled)] == [5, 5, 5]
    assert always.share_if_outputs_move == 0.8
    assert always.reserved_bytes == always.reserved_bytes_at_most == 0
    assert temp.reserved_bytes == temp.reserved_bytes_at_most == 3 * RESERVATION_GRANULARITY
    assert temp.padding_bytes == 1 << 20
    # The temp takes 6 MiB; argument 0 and the result 2 MiB each, argument 1 takes 4.
    assert profiled.reserved_bytes == 6 << 20
    assert profiled.reserved_bytes_at_most == 14 << 20
    assert profiled.padding_bytes == 4 << 20


def test_a_result_that_is_scratch_for_most_commands_is_a_trap(plan: Plan, executable: Executable) -> None:
    (trap,) = plan.traps
    assert (trap.row.path, trap.commands, trap.total) == ("out[1]", 4, 5)
    written_once = dataclasses.replace(executable, hlo_uses={2: ("last_fusion",)})
    assert plan_of(written_once).traps == ()


def test_nothing_recorded_divides_by_nothing(executable: Executable) -> None:
    options = {**executable.debug_options, "xla_gpu_enable_command_buffer": ()}
    plan = plan_of(dataclasses.replace(executable, debug_options=options))
    assert plan.command_count == 0
    assert plan.summary(ALWAYS).share_if_outputs_move == 0.0
    assert plan.traps == ()
    assert all(
        verdict.role is AllocationRole.DYNAMIC
        for row in plan.allocations
        for verdict in row.verdicts.values()
    )


def test_an_update_mode_of_another_release_is_unknown(executable: Executable) -> None:
    options = {**executable.debug_options, "xla_gpu_command_buffer_update_mode": "NEVER_UPDATE"}
    assert plan_of(dataclasses.replace(executable, debug_options=options)).effective_mode is None


def test_thunks_with_private_allocations_are_not_visible() -> None:
    inner = kernel(2, "inner", (0,), (1,))
    fusion = Thunk(ThunkKind("kDynamicSliceFusion"), 1, "fusion", nested=((inner,),))
    loop = Thunk(ThunkKind("kWhile"), 3, "loop", nested=((), (fusion,)))
    assert [thunk.id for thunk in visible(loop)] == [3, 1]
