from __future__ import annotations

import logging

import jax
import pytest

from jax_cmdbuf.api.graph_program import GraphProgram, ProgramOptions
from jax_cmdbuf.api.graph_signatures import PROGRAMS, GraphSignatures
from jax_cmdbuf.api.session import simulated_device
from jax_cmdbuf.runtime.guard import Guarded
from jax_cmdbuf.runtime.registry import ProfileRegistry
from tests.api.graph_programs import recorded
from xla_flags.options import CommandBufferUpdateMode


def test_a_program_is_found_by_its_number_until_it_is_forgotten() -> None:
    signatures = GraphSignatures(jax.jit(abs), ("x",), "abs")
    mode = CommandBufferUpdateMode.SKIP_TEMP
    options = ProgramOptions(mode, ProfileRegistry(), Guarded(), lambda ordinal, stream: simulated_device())
    program = GraphProgram("abs", recorded("two_gemm_drop"), options, {})
    number = signatures.add(program)
    assert PROGRAMS[number] is program
    (signature,) = signatures.made
    report = signature.report()
    assert (report.function, report.module, report.mode) == ("abs", "jit_two_gemm_drop", "SKIP_TEMP")
    assert (report.native_reason, report.remapping_reason, report.runs) == ("", "", 0)
    signature.release()
    assert number in PROGRAMS
    signature.forget()
    assert number not in PROGRAMS


def test_a_reason_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    signatures = GraphSignatures(jax.jit(abs), ("x",), "abs")
    with caplog.at_level(logging.WARNING, "jax_cmdbuf"):
        for reason in ("one", "other", "one"):
            signatures.leave_to_xla(reason, "jit_abs")
    assert [signature.report().native_reason for signature in signatures.made] == ["one", "other"]
    assert len(caplog.records) == 2
