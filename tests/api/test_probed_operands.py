from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp

from jax_cmdbuf.api.probe import PROBE_LOG, ProbeRecord, probe
from jax_cmdbuf.api.probed_operands import ProbedOperand, probed_operands

RECORDING = Path(__file__).parents[1] / "data" / "va_remap" / "probe_mid" / "SKIP_PROFILED.json.gz"


def record(addresses: list[int]) -> ProbeRecord:
    buffers = cast(Any, tuple(SimpleNamespace(address=address) for address in addresses))
    names = tuple(f"[{number}]" for number in range(len(addresses)))
    return ProbeRecord(0, "mid", names, buffers, "CUDA", 0, None, None, 0)


def test_the_recorded_probe_shows_when_xla_began_to_remap() -> None:
    executions = json.loads(gzip.decompress(RECORDING.read_bytes()))["executions"]
    first, second, output = probed_operands(record(call["args"]) for e in executions for call in e["probe"])
    assert (first.label, first.name, first.device) == ("mid", "[0]", 0)
    for operand, number in ((first, 0), (second, 1)):
        assert (operand.moves, operand.settled_after) == (1, 3)
        assert operand.addresses[2] == executions[0]["input_addresses"][number]
        assert operand.addresses[3] not in executions[3]["input_addresses"]
    assert output.moves == len(executions) - 1


def test_what_never_moved_was_settled_from_the_start() -> None:
    assert ProbedOperand("a", "x", 0, (5, 5, 5)).settled_after == 0
    assert ProbedOperand("a", "x", 0, (5, 5, 6)).settled_after == 2
    assert ProbedOperand("a", "x", 0, (5,)).moves == 0
    assert probed_operands(()) == ()


def test_real_records_are_told_apart_by_label_and_operand() -> None:
    def function(a, b):
        probe(a, b, label="both")
        probe(a, label="one")
        return a + b

    PROBE_LOG.clear()
    jitted = jax.jit(function)
    a, b = jnp.ones(8), jnp.zeros(8)
    for _ in range(3):
        jax.block_until_ready(jitted(a, b))
    jax.effects_barrier()
    found = {(each.label, each.name): each for each in probed_operands(PROBE_LOG)}
    assert set(found) == {("both", "[0]"), ("both", "[1]"), ("one", "[0]")}
    assert found["one", "[0]"].addresses == (a.unsafe_buffer_pointer(),) * 3
    PROBE_LOG.clear()
