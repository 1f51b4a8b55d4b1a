from __future__ import annotations

import pytest

from jax_cmdbuf.errors import CmdbufError, CompileError, InputError, MissingDependencyError
from jax_cmdbuf.executable.compile_log import explain, key_line, one_line, remarks


@pytest.mark.parametrize(
    ("message", "error", "names"),
    [
        (
            "UNAVAILABLE: No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink",
            MissingDependencyError,
            "nvidia-cuda-nvcc",
        ),
        ("INTERNAL: libdevice not found at ./libdevice.10.bc", MissingDependencyError, "nvidia-nvvm"),
        (
            "NOT_FOUND: No FFI handler registered for cusolver_potrf_ffi on a platform CUDA (canonical cuda)",
            MissingDependencyError,
            "cusolver_potrf_ffi, which JAX's CUDA kernels provide: pip install jax-cuda13-plugin",
        ),
        ("topology not implemented for cuda", MissingDependencyError, "jax-cuda13-pjrt"),
        ("Unknown backend: 'gpu' requested, ... Platforms present are: cpu", CompileError, "debug.print"),
        ("cuDNN is not detected.", CompileError, "implementation='xla'"),
        ("Failed to parse GpuTargetConfigProto from the 'target_config'", InputError, "shipped targets"),
        (
            "INTERNAL: something new\n  at a place",
            CompileError,
            "XLA refused the program: INTERNAL: something new at",
        ),
    ],
)
def test_each_known_message_becomes_a_sentence(message: str, error: type[CmdbufError], names: str) -> None:
    explained = explain(message)
    assert type(explained) is error
    assert names in str(explained)


def test_a_warning_about_what_a_gpu_would_do_is_a_remark() -> None:
    log = "W1201 05:47:12.3 9 sort.cc:2] Missing deviceless CUB scratch size data for sort. Using fallback"
    assert remarks(log)[0].startswith("large sorts were compiled with XLA's fallback")
    assert remarks("cuda_plugin_extension is not found.") == ()


def test_one_line_is_bounded() -> None:
    assert one_line("a\n b\t c") == "a b c"
    assert len(one_line("x" * 10_000)) == 400


def test_the_fatal_line_is_the_key_line() -> None:
    log = """
I1201 05:47:12.345678    1234 some_file.cc:1] Hello
E1201 05:47:12.345678    1234 some_file.cc:2] A bad thing
F1201 05:47:12.345678    1234 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_nope=1
*** Check failure stack trace: ***
    @     0x7f1 absl::something
"""
    assert key_line(log) == "Unknown flag in XLA_FLAGS: --xla_nope=1"


def test_without_a_fatal_line_an_error_or_the_last_words_are() -> None:
    assert key_line("E1201 05:47:12.3 9 f.cc:2] A bad thing\nmore\n") == "A bad thing"
    assert key_line("first\nlast words\n\n") == "last words"
    assert key_line("") == ""
