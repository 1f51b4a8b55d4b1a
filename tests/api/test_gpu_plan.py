"""A plan for one signature: given as bytes, file or executable, or compiled for a GPU that is not there."""

from __future__ import annotations

import gzip
import logging
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_cmdbuf.api.gpu_plan import CompiledPrograms, make_plan
from jax_cmdbuf.errors import InputError, TargetError
from jax_cmdbuf.executable.executable import Executable

RECORDED = Path(__file__).parents[1] / "data" / "va_remap" / "two_gemm_drop" / "executable.bin.gz"
SHAPE = jax.ShapeDtypeStruct((128, 128), jnp.float32)


def two_gemm(a, b, c):
    return (a @ b) @ c


@pytest.fixture
def traced():
    return jax.jit(two_gemm).trace(SHAPE, SHAPE, SHAPE)


@pytest.mark.parametrize("form", ["path", "text", "bytes", "packed bytes", "executable"])
def test_a_given_plan_is_taken(traced, form):
    packed = RECORDED.read_bytes()
    given = {
        "path": RECORDED,
        "text": str(RECORDED),
        "bytes": gzip.decompress(packed),
        "packed bytes": packed,
        "executable": Executable.from_file(RECORDED),
    }[form]
    plan = make_plan(traced, None, given)
    assert plan.executable.module == "jit_two_gemm_drop"
    assert plan.kept == (0, 1, 2)
    assert not plan.effects
    assert [len(buffer.commands) for buffer in plan.conversion.command_buffers] == [4]


def test_arguments_that_nothing_depends_on_are_not_taken():
    traced = jax.jit(lambda a, unused, b, c: two_gemm(a, b, c)).trace(SHAPE, SHAPE, SHAPE, SHAPE)
    assert make_plan(traced, None, RECORDED).kept == (0, 2, 3)


def test_a_plan_of_another_function_is_refused():
    traced = jax.jit(lambda a, b: a @ b).trace(SHAPE, SHAPE)
    with pytest.raises(InputError, match=r"of jit_two_gemm_drop takes 3 arrays, but <lambda> passes 2"):
        make_plan(traced, None, RECORDED)


def test_unreadable_plans_and_unknown_targets(traced, tmp_path):
    with pytest.raises(InputError, match=r"cannot read the plan .*missing"):
        make_plan(traced, None, tmp_path / "missing")
    (tmp_path / "cut.gz").write_bytes(RECORDED.read_bytes()[:100])
    with pytest.raises(InputError, match="cannot read the plan"):
        make_plan(traced, None, tmp_path / "cut.gz")
    with pytest.raises(TargetError):
        make_plan(traced, "abacus", RECORDED)


@pytest.mark.aot
def test_what_was_compiled_is_compiled_again_for_nobody(caplog):
    compiled = CompiledPrograms()

    def traced():
        return jax.jit(lambda a, b: jnp.tanh(a @ b) @ b).trace(SHAPE, SHAPE)

    with caplog.at_level(logging.INFO, "jax_cmdbuf"):
        one, other = (make_plan(traced(), "h200", None, compiled) for _ in range(2))
    assert one.executable is other.executable
    began, ended = (record.getMessage() for record in caplog.records)
    assert began == "compiling <lambda> for h200"
    assert re.fullmatch(r"compiled <lambda> for h200 in \d+\.\d s", ended)
    compiled.clear()


@pytest.mark.aot
def test_without_one_it_is_compiled_for_the_target(traced):
    plan = make_plan(traced, "h100")
    assert plan.executable.module == "jit_two_gemm"
    assert plan.kept == (0, 1, 2)
