"""Reading recordings: what is input, and what is refused with which sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.runtime.scenario import Outcome, load_scenario, match_in_order, order_of_calls
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from xla_flags.options import CommandBufferUpdateMode as Mode

DATA = Path(__file__).parents[1] / "data" / "va_remap"


def load(name, mode="SKIP_PROFILED"):
    return load_scenario(DATA / name / f"{mode}.json.gz")


def test_inputs_are_addresses_donation_and_outside_errors():
    scenario = load("two_gemm_drop")
    assert (scenario.name, scenario.module, scenario.mode) == (
        "two_gemm_drop",
        "jit_two_gemm_drop",
        Mode.SKIP_PROFILED,
    )
    assert scenario.has_donation is False
    assert scenario.argument_shapes == ("f32[128,128]",) * 3
    assert (scenario.device, scenario.jaxlib) == ("NVIDIA H200", "0.11.2")
    first, fourth = scenario.executions[0], scenario.executions[3]
    assert len(first.parameters) == 3
    assert [address.size for address in first.allocated] == [65536, 524288]
    assert first.reservation is None
    assert fourth.reservation is not None
    assert first.command_buffer_runs == fourth.command_buffer_runs == 1
    assert first.freed[0] == first.allocated[1].opaque


def test_outcomes():
    assert {each.outcome for each in load("two_gemm_drop").executions} == {Outcome.RETURNED}
    assert [each.outcome for each in load("failed_exec").executions[:4]] == [
        Outcome.RETURNED,
        Outcome.FAILED,
        Outcome.FAILED,
        Outcome.RETURNED,
    ]
    assert {each.outcome for each in load("donate_external_hold").executions} == {Outcome.REFUSED}
    assert load("donate_external_hold").has_donation is True


def test_threads():
    scenario = load("threads")
    assert scenario.executions == ()
    assert scenario.has_donation is None
    assert scenario.threads.reservation is not None
    assert len(scenario.recorded) == 1


@pytest.mark.parametrize(
    ("element_type", "shape"),
    [
        ("float32", "f32"),
        ("bfloat16", "bf16"),
        ("int32", "s32"),
        ("uint8", "u8"),
        ("bool", "pred"),
        ("float8_e4m3fn", "f8e4m3fn"),
        ("complex64", "c64"),
    ],
)
def test_element_types_are_xlas(tmp_path, element_type, shape):
    path = tmp_path / "scenario.json"
    value = {"scenario": "s", "module": "jit_f", "update_mode": "SKIP_TEMP", "executions": []}
    path.write_text(json.dumps(value | {"inputs": [[[2, 3], element_type], [[], element_type]]}))
    assert load_scenario(path).argument_shapes == (f"{shape}[2,3]", f"{shape}[]")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "is not a recording of executions"),
        (b"{}", "'executions' is missing"),
        (b'{"executions": [], "scenario": "s", "module": "m", "update_mode": "NO"}', "'NO' is not a valid"),
        (b'{"executions": [{}], "scenario": "s", "module": "m", "update_mode": "SKIP_TEMP"}', "'events'"),
        (gzip.compress(b"{}", mtime=0)[:-5], "cannot read scenario"),
    ],
)
def test_anything_else_is_refused_with_the_reason(tmp_path, content, message):
    path = tmp_path / "scenario.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_scenario(path)


def test_a_missing_file_is_refused():
    with pytest.raises(InputError, match="cannot read scenario"):
        load_scenario(DATA / "no_such_file.json")


def test_arguments_that_the_program_dropped():
    assert match_in_order(["a", "b", "a", "c"], ["b", "c"]) == (1, 3)
    assert match_in_order(["a", "a"], ["a"]) == (0,)
    assert match_in_order(["a", "b"], ["b", "a"]) is None
    assert match_in_order([], []) == ()


def buffer(number, size):
    return DeviceAddress(number, size)


def test_calls_of_threads_come_in_the_order_in_which_they_ended():
    out, temp = (1, 2, 3), (11, 12, 13)
    memory = [
        (True, buffer(out[0], 4)),
        (True, buffer(out[1], 4)),
        (True, buffer(temp[0], 8)),
        (True, buffer(temp[1], 8)),
        (False, buffer(temp[1], 8)),
        (True, buffer(out[2], 4)),
        (True, buffer(temp[2], 8)),
        (False, buffer(temp[0], 8)),
        (False, buffer(out[0], 4)),
        (False, buffer(temp[2], 8)),
    ]
    assert [address.opaque for address in order_of_calls(memory, [4, 8])] == [2, 12, 1, 11, 3, 13]
    # Where calls leave allocations out they do not overlap.
    assert [address.opaque for address in order_of_calls(memory[:3], [4, 8])] == [1, 2, 11]
