from __future__ import annotations

import pytest

from xla_flags.schema import Catalog, FlagKind
from xla_flags.scratch import Scratch
from xla_flags.setters import SETTERS

CATALOG = Catalog.for_jaxlib("0.12.0.1")


def run(name: str, *values: str) -> tuple[object, str | None, list[str]]:
    """The field's value after the flag was set to each value, the last error, and the log."""
    scratch = Scratch(CATALOG)
    flag = CATALOG.flags[name]
    error = None
    for value in values:
        error = SETTERS[flag.kind](flag, value, scratch)
    written = scratch.plain.get(flag.field.name) if flag.field is not None else scratch.fuel
    return written, error, scratch.log


def test_every_kind_has_a_setter() -> None:
    assert SETTERS.keys() == {*FlagKind}


GOOD = {
    ("xla_cpu_enable_fast_math", "TRUE"): True,
    ("xla_backend_optimization_level", " 2"): 2,
    ("xla_gpu_autotune_max_solutions", "-9223372036854775808"): -(2**63),
    ("xla_gpu_autotune_gemm_rtol", "0.1"): 0.10000000149011612,
    ("xla_dump_to", " x "): " x ",
    ("xla_cpu_max_isa", "avx2é"): "AVX2é",
    ("xla_gpu_shape_checks", "IGNORE"): "IGNORE",
    (
        "xla_gpu_enable_while_loop_unrolling",
        "while_loop_unrolling_no_unroll",
    ): "WHILE_LOOP_UNROLLING_NO_UNROLL",
    ("xla_cpu_opt_preset", "fast_compile"): "CPU_OPT_PRESET_FAST_COMPILE",
    ("xla_cpu_opt_preset", "Cpu_Opt_Preset_Fast_Compile"): "CPU_OPT_PRESET_FAST_COMPILE",
    ("xla_autotuner_preferred_backend", ""): "UNSPECIFIED_BACKEND",
    ("xla_autotuner_preferred_backend", "None"): "UNSPECIFIED_BACKEND",
    ("xla_autotuner_preferred_backend", "cudnn"): "CUDNN",
    ("xla_gpu_detect_nan", "dump"): "DETECTION_MODE_DUMP",
    ("xla_gpu_all_gather_mode", "PEER"): "COLLECTIVES_PEER_MEMORY",
    ("xla_gpu_pipeline_all_gather", "Explicit"): "COLLECTIVE_PIPELINING_MODE_EXPLICIT",
    ("xla_gpu_experimental_deterministic_ops_triton", "Unchecked"): "DETERMINISTIC_OPS_TRITON_MODE_UNCHECKED",
    ("xla_gpu_execution_terminate_timeout", "1h2ms"): "1h2ms",
    ("xla_gpu_enable_libnvptxcompiler", "false"): False,
    ("xla_gpu_enable_libnvjitlink", "0"): "LIB_NV_JIT_LINK_MODE_DISABLED",
    ("xla_gpu_graph_enable_concurrent_region", "true"): "CONCURRENT",
    ("xla_cpu_enable_concurrency_optimized_scheduler", "false"): "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    ("xla_gpu_enable_pipelined_all_reduce", "false"): "COLLECTIVE_PIPELINING_MODE_DEFAULT",
    ("xla_gpu_executable_warn_stuck_timeout", "3"): 3,
    ("xla_gpu_unsupported_use_all_reduce_one_shot_kernel", "false"): [],
    ("xla_gpu_experimental_max_unroll_factor", "1"): 1,
    ("xla_fuel", "a= 1 ,b=-2,=3,a=4"): {"a": 4, "b": -2, "": 3},
}


@pytest.mark.parametrize(("flag", "value"), GOOD)
def test_good_values(flag: str, value: str) -> None:
    assert run(flag, value) == (GOOD[flag, value], None, [])


INTERPRETED = ("xla_cpu_enable_fast_math", "xla_backend_optimization_level", "xla_gpu_autotune_gemm_rtol")
INTERPRETED += ("xla_gpu_enable_cudnn_fmha", "xla_cpu_use_thunk_runtime", "xla_gpu_enable_libnvptxcompiler")
INTERPRETED += ("xla_gpu_enable_libnvjitlink", "xla_gpu_unsupported_use_all_reduce_one_shot_kernel")
SILENT = {
    ("xla_gpu_shape_checks", "ignore"),
    ("xla_gpu_shape_checks", "1"),
    ("xla_gpu_shape_checks", " IGNORE"),
    ("xla_cpu_opt_preset", ""),
    ("xla_gpu_enable_while_loop_unrolling", "no_unroll"),
    ("xla_gpu_detect_nan", "FAIL"),
    ("xla_gpu_detect_nan", "DETECTION_MODE_FAIL"),
    ("xla_gpu_all_gather_mode", "COLLECTIVES_PEER_MEMORY"),
    ("xla_gpu_all_gather_mode", "invalid"),
    ("xla_gpu_execution_terminate_timeout", "1"),
    ("xla_gpu_enable_libnvptxcompiler", "true"),
    ("xla_gpu_experimental_max_unroll_factor", "0"),
}


@pytest.mark.parametrize("flag", INTERPRETED)
def test_values_of_the_wrong_type_are_logged(flag: str) -> None:
    written, error, log = run(flag, "x")
    assert not written
    assert error
    assert log == [f"E Couldn't interpret value x for flag {flag}."]


@pytest.mark.parametrize(("flag", "value"), sorted(SILENT))
def test_refused_values_are_not_logged(flag: str, value: str) -> None:
    written, error, log = run(flag, value)
    assert (written, log) == (None, [])
    assert error


def test_flags_without_effect() -> None:
    assert run("xla_gpu_enable_cudnn_fmha", "true") == ({}, None, [])
    assert run("xla_cpu_use_thunk_runtime", "1")[2] == [
        'W "xla_cpu_use_thunk_runtime" is no longer supported and will be removed in a future release.'
    ]


def test_the_last_scalar_and_the_last_fuel_win() -> None:
    assert run("xla_dump_to", "a", "b")[0] == "b"
    assert run("xla_fuel", "a=1", "b=2")[0] == {"b": 2}


def test_a_bool_that_edits_a_list() -> None:
    name = "xla_gpu_unsupported_use_all_reduce_one_shot_kernel"
    assert run(name, "false", "true")[0] == ["COLLECTIVE_KERNEL_ALL_REDUCE"]
    assert run(name, "true", "true")[0] == ["COLLECTIVE_KERNEL_ALL_REDUCE"]


@pytest.mark.parametrize(
    ("value", "token", "wanted"),
    [
        ("", "", "have format X=INTEGER"),
        ("a=1,", "", "have format X=INTEGER"),
        ("a=1=2", "a=1=2", "have format X=INTEGER"),
        ("a=1,b=x", "x", "be an integer"),
        ("a=", "", "be an integer"),
    ],
)
def test_bad_fuel(value: str, token: str, wanted: str) -> None:
    written, error, log = run("xla_fuel", value)
    assert written == {}
    assert error
    assert log == [f"E Illegal value for --xla_fuel. Saw {value}, but expected token {token} to {wanted}."]
