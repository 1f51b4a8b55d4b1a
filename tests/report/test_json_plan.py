from __future__ import annotations

import json

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.thunks import Thunk, ThunkKind
from jax_cmdbuf.report.json_plan import plan_as_dict, plan_as_json
from jax_cmdbuf.report.model import Plan
from tests.report.programs import check_snapshot, kernel, plan_of


def test_the_contract(plan: Plan) -> None:
    data = plan_as_dict(plan)
    assert {
        "module",
        "target",
        "jaxlib",
        "xla_flags",
        "allocations",
        "thunks",
        "command_buffers",
        "policy",
    } <= set(data)
    assert (data["module"], data["target"], data["gpu"], data["jaxlib"]) == (
        "jit_step",
        "h200",
        "NVIDIA H200",
        "0.12.0.1",
    )
    assert all(
        {"index", "size", "kind", "parameter_number", "path", "live_out", "commands", "modes"} <= set(each)
        for each in data["allocations"]
    )
    assert data["thunks"][1]["id"] == 2
    assert data["thunks"][1]["slices"] == [
        {"allocation": 5, "offset": 0, "size": 1 << 20, "write": False},
        {"allocation": 4, "offset": 0, "size": 1 << 20, "write": False},
        {"allocation": 2, "offset": 0, "size": 1 << 20, "write": True},
    ]
    (buffer,) = data["command_buffers"]
    assert buffer["commands"] == [1, 2, 3, 4, 5]
    assert buffer["allocations"] == [0, 1, 2, 4, 5]
    assert data["policy"] == {
        "ALWAYS_UPDATE": {"constants": [4], "persistent": [4], "va_remapped": [], "candidates": []},
        "SKIP_TEMP": {"constants": [4], "persistent": [4, 5], "va_remapped": [5], "candidates": []},
        "SKIP_PROFILED": {
            "constants": [4],
            "persistent": [4, 5],
            "va_remapped": [5],
            "candidates": [0, 1, 2],
        },
    }
    assert [each["id"] for each in data["left_out"]] == [6, 7]


def test_the_text_is_the_same_data_and_stable(plan: Plan) -> None:
    text = plan_as_json(plan)
    assert json.loads(text) == json.loads(json.dumps(plan_as_dict(plan)))
    assert text.endswith("}\n")
    check_snapshot("plan.json", text)


def test_nested_thunks_name_their_parent_and_private_slices_are_hidden(executable: Executable) -> None:
    inner = kernel(12, "inner", (0,), (1,))
    fusion = Thunk(ThunkKind("kDynamicSliceFusion"), 11, "fusion", nested=((inner,),))
    loop = Thunk(ThunkKind("kWhile"), 10, "loop", nested=((kernel(13, "condition", (5,), (5,)),), (fusion,)))
    program = Executable(**{**vars(executable), "thunks": (loop,)})
    thunks = {each["id"]: each for each in plan_as_dict(plan_of(program))["thunks"]}
    assert [(number, each["parent"]) for number, each in thunks.items()] == [
        (10, None),
        (13, 10),
        (11, 10),
        (12, 11),
    ]
    assert thunks[12]["slices"] == []
    assert len(thunks[13]["slices"]) == 2
