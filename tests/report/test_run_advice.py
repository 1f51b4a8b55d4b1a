"""Rules from what was seen to what to change: one recorded loop, or one hand-written row, for each."""

from __future__ import annotations

import dataclasses

import pytest

from jax_cmdbuf.report.run_advice import advise, find_hazards
from jax_cmdbuf.report.run_model import AllocationRun, ArgumentUse, ExecutionRun
from jax_cmdbuf.runtime.profiling import CandidateReason
from tests.report.runs import BASE, function

ARGUMENT = AllocationRun(
    index=0,
    size=64,
    path="state.w",
    role="candidate",
    is_argument=True,
    is_result=False,
    state="rejected",
    reason=CandidateReason.MOVED.value,
    commands=2,
    compared=7,
    moves=7,
    places=2,
    cells="",
)
RESULT = dataclasses.replace(ARGUMENT, index=9, path="result[0]", is_argument=False, is_result=True)


def advice(*rows, **changes):
    made = dataclasses.replace(BASE, allocations=rows, calls=8, commands=10, **changes)
    return advise(made, {each.index: frozenset({each.index, 100}) for each in rows})


def one(*rows, **changes):
    (found,) = advice(*rows, **changes)
    return found


def argument(**use):
    return dataclasses.replace(ARGUMENT, use=ArgumentUse(calls=8, **use))


def test_a_state_that_is_fed_back_is_to_be_donated():
    found = one(argument(fed_back=7, result="result[0]"), RESULT)
    assert (found.action, found.path) == ("donate", "state.w")
    assert "donate_argnames='state'" in found.text
    assert found.commands == 3  # those of the result, too


def test_the_result_that_is_fed_back_is_not_advised_about_twice():
    use = {"fed_back": 7, "result": "result[0]"}
    assert [each.path for each in advice(RESULT, argument(**use))] == ["state.w"]
    assert [each.path for each in advice(RESULT, argument())] == ["result[0]", "state.w"]


def test_the_first_call_has_no_call_before_it():
    assert one(argument(fed_back=4)).action == "donate"
    assert one(argument(fed_back=3)).action == "keep alive"


def test_a_donated_argument_whose_result_has_other_memory():
    found = one(argument(fed_back=7, donated=True))
    assert found.action == "donate"
    assert "memory of its own" in found.text


def test_a_host_value_that_stays_is_to_be_uploaded_once():
    found = one(argument(host=8, host_kept=7, kind="numpy.ndarray"))
    assert found.action == "upload once"
    assert "jax.device_put before the loop" in found.text


def test_new_host_values_are_to_be_written_into_one_buffer():
    found = one(argument(host=8, kind="numpy.ndarray"))
    assert found.action == "upload once"
    assert ".set(new), donate_argnums=0" in found.text


def test_a_python_number_is_no_array():
    assert "jnp.asarray" in one(argument(host=8, kind="float")).text


def test_another_array_in_each_call_is_to_be_kept():
    found = one(argument())
    assert found.action == "keep alive"
    assert "keep it alive" in found.text


def test_an_array_from_another_function_names_it():
    assert "a result of make_batch" in one(argument(source="make_batch")).text


def test_a_result_that_moves_is_to_be_handed_back():
    found = one(RESULT)
    assert found.action == "reuse result"
    assert "donate_argnames='out', keep_unused=True" in found.text


def test_nothing_is_advised_where_nothing_moves():
    stays = dataclasses.replace(
        ARGUMENT, state="remapped", reason=CandidateReason.STABLE.value, moves=0, places=1
    )
    assert advice(stays) == ()


def test_what_holds_for_many_leaves_is_said_once_with_all_their_commands():
    rows = [
        dataclasses.replace(argument(fed_back=7), index=number, path=f"state.p[{number}]")
        for number in range(9)
    ]
    other = dataclasses.replace(argument(fed_back=7), index=20, path="more")
    found = advice(other, *rows)
    assert [each.subject for each in found] == ["state.p[0] and 8 more", "more"]
    assert [each.commands for each in found] == [10, 2]


@pytest.mark.parametrize(
    ("name", "action", "path", "words"),
    [
        ("shared_param", "pass once", "a_0_.1", "jnp.copy"),
        ("foreign_param", "copy in", "a_0_.1", "DLPack"),
        ("mlp_change_after", "keep alive", "a_1_.1", "moved once since"),
        ("feedback", "keep alive", "a_1_.1", "another array in each call"),
        ("two_gemm_drop", "reuse result", "result[]", "keep_unused=True"),
    ],
)
def test_recorded_loops(name, action, path, words):
    (found,) = [each for each in function(name).advice if each.path == path]
    assert found.action == action
    assert words in found.text


def test_the_other_argument_of_a_shared_buffer_is_named():
    uses = {1: ArgumentUse(calls=8, same_as="b")}
    (found,) = [each for each in function("shared_param", uses=uses).advice if each.path == "a_0_.1"]
    assert found.text.startswith("one buffer with b")


def test_temporaries_that_move_want_another_mode():
    first = function("two_gemm_drop", "ALWAYS_UPDATE").advice[0]
    assert (first.action, first.commands) == ("remap temporaries", 4)
    assert not [
        each for each in function("two_gemm_drop", "SKIP_TEMP").advice if each.action == "remap temporaries"
    ]


def hazards(name=None, **changes):
    return [(each.kind, each.text) for each in find_hazards(dataclasses.replace(BASE, **changes))]


def test_failures_are_hazards_with_number_and_text():
    ((kind, text),) = [(each.kind, each.text) for each in function("shared_param_late").hazards]
    assert kind == "error"
    assert text.startswith("4 executions would fail on the GPU, the first is number 4: ALREADY_EXISTS")


def test_moves_after_the_decision_are_a_hazard():
    ((kind, text),) = [(each.kind, each.text) for each in function("mlp_change_after").hazards]
    assert (kind, text.split(" ")[0]) == ("late move", "a_1_.1")


def test_a_mode_that_is_not_effective():
    ((kind, text),) = hazards(
        requested="SKIP_PROFILED", effective="ALWAYS_UPDATE", reason="no VMM", remedy="set it", runtime="xla"
    )
    assert kind == "mode"
    assert text == "SKIP_PROFILED was requested, ALWAYS_UPDATE is effective: no VMM (set it)"


def test_too_few_executions():
    assert hazards(phase="profiling", calls=1, limit=3)[0][0] == "short"
    assert hazards(phase="profiling", calls=9, limit=3, failures=8)[0][1].startswith("8 executions failed")


def test_nothing_stable():
    assert hazards(phase="disabled", commands=4)[0][0] == "disabled"


def test_one_array_twice_is_a_hazard_once_it_is_remapped():
    row = dataclasses.replace(argument(same_as="b"), state="remapped", moves=0, reason="")
    assert hazards(allocations=(row,), selected=(0,))[0][0] == "shared buffer"
    assert hazards(allocations=(row,)) == []


def test_a_native_failure_is_no_prediction():
    execution = ExecutionRun(0.0, 1.0, error="INTERNAL: no")
    assert hazards(runtime="xla", executions=(execution,), first=3)[0][1] == (
        "1 execution failed, the first is number 3: INTERNAL: no"
    )
