from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jax_cmdbuf.errors import CompileError, InputError, MissingDependencyError
from jax_cmdbuf.executable import compile as compile_client
from jax_cmdbuf.executable.compile import CompileRequest, FunctionSource, ModuleSource, compile_for_target
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.executable.thunk_dump import grouping_differences

pytestmark = pytest.mark.aot
H200 = load_target("h200")
NOTHING = ModuleSource("module {}", "nothing")
PROGRAM = """
import jax, jax.numpy as jnp
print("the program may print")
def f(x, y):
    for _ in range(3):
        x = jnp.tanh(x @ y)
    return x, x.sum()
def f_args():
    return jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((64, 64), jnp.float32)
"""


@pytest.fixture
def program(tmp_path: Path) -> FunctionSource:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return FunctionSource(str(path), "f")


def worker_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Makes the client start this shell script, with the directory as last argument, instead of Python."""
    path = tmp_path / "worker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_a_function_comes_back_with_xlas_own_grouping(program: FunctionSource) -> None:
    result = compile_for_target(CompileRequest(program, H200, xla_flags="--xla_gpu_graph_min_graph_size=1"))
    executable = Executable.from_bytes(result.serialized)
    assert result.arguments == ("x", "y")
    assert result.results == ("out[0]", "out[1]")
    assert executable.debug_options["xla_gpu_graph_min_graph_size"] == 1
    assert set(result.thunk_dumps) == {"thunk_sequence", "thunk_sequence_after_thunk_passes"}
    conversion = convert(executable, device=executable.device or H200.device)
    assert conversion.command_buffers
    assert grouping_differences(conversion, result.thunk_dumps["thunk_sequence_after_thunk_passes"]) == ()
    assert {"jax", "jaxlib", "jax-cuda13-pjrt"} <= set(result.versions)


def test_the_callers_process_stays_as_it_was(program: FunctionSource) -> None:
    before = dict(os.environ), Path.cwd(), set(sys.modules), list(sys.path)
    with pytest.raises(InputError, match="has no function g"):
        compile_for_target(CompileRequest(FunctionSource(program.module, "g"), H200))
    after = dict(os.environ), Path.cwd(), set(sys.modules), list(sys.path)
    assert after == before


def test_flags_come_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_no_such_flag=1")
    with pytest.raises(InputError, match=r"XLA refuses the flags: .*--xla_gpu_no_such_flag=1"):
        compile_for_target(CompileRequest(NOTHING, H200))
    environment = compile_client._worker_environ({"XLA_FLAGS": "--a", "PYTHONPATH": "/mine"}, "--b")
    assert environment["XLA_FLAGS"] == "--b"
    assert environment["JAX_PLATFORMS"] == "cpu"
    assert environment["PYTHONPATH"].endswith(f"{os.pathsep}/mine")


def test_a_signal_becomes_a_compile_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_that(tmp_path, monkeypatch, "echo 'F1201 05:47:12.3 9 f.cc:2] Check failed: x' >&2; kill -FPE $$")
    with pytest.raises(CompileError, match=r"ended with signal SIGFPE while compiling: Check failed: x$"):
        compile_for_target(CompileRequest(NOTHING, H200))


def test_a_fatal_flag_becomes_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "F1201 05:47:12.3 9 f.cc:2] Unknown flag in XLA_FLAGS: --xla_new=1"
    worker_that(tmp_path, monkeypatch, f"echo '{line}' >&2; exit 1")
    with pytest.raises(InputError, match=r"^XLA refuses the flags: Unknown flag in XLA_FLAGS: --xla_new=1$"):
        compile_for_target(CompileRequest(NOTHING, H200))


def test_an_exit_without_an_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_that(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(CompileError, match=r"ended with exit status 0 while compiling$"):
        compile_for_target(CompileRequest(NOTHING, H200))


def test_too_long_ends_the_worker_and_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "held-open"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    worker_that(tmp_path, monkeypatch, f"exec 3>{held}; sleep 600 & wait")
    with pytest.raises(CompileError, match=r"took longer than 0\.3 s and was ended"):
        compile_for_target(CompileRequest(NOTHING, H200, timeout_s=0.3))
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # comes only when the last process that holds the other end is gone
    os.close(reader)


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(CompileError, match="cannot start the compiling process: No such file"):
        compile_for_target(CompileRequest(NOTHING, H200))


def masked(script: str, *hidden: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a mount namespace of its own in which the directories are empty."""
    allowed = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if allowed.returncode != 0:
        pytest.skip("mount namespaces are not permitted here")
    mounts = "".join(f"[ -d {path} ] && mount -t tmpfs none $(readlink -f {path}); " for path in hidden)
    # ptxas may also be found on PATH.
    command = f"{mounts} PATH=/usr/bin:/bin exec {sys.executable} -c '{script}'"
    return subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)


COMPILE = """
import sys
sys.path[:0] = {path!r}
from jax_cmdbuf.executable.compile import *
from jax_cmdbuf.executable.targets import load_target
try:
    result = compile_for_target(CompileRequest(FunctionSource("{module}", "f"), load_target("h200")))
    print(len(result.serialized))
except Exception as error:
    print(type(error).__name__, error)
"""
TOOLKIT = ("/usr/local/cuda", "/usr/local/cuda/bin")


def script(program: FunctionSource) -> str:
    root = Path(compile_client.__file__).parents[2]
    text = COMPILE.format(path=[str(root), str(root / "flags")], module=program.module)
    return text.replace("'", '"')


def test_with_the_toolkit_masked_the_wheels_are_enough(program: FunctionSource) -> None:
    done = masked(script(program), *TOOLKIT)
    assert done.stdout.strip().isdecimal(), done.stdout + done.stderr


@pytest.mark.parametrize(("piece", "package"), [("bin", "nvidia-cuda-nvcc"), ("nvvm", "nvidia-nvvm")])
def test_with_a_piece_hidden_one_sentence_names_its_package(
    program: FunctionSource, piece: str, package: str
) -> None:
    wheels = next(Path(entry, "nvidia/cu13") for entry in sys.path if Path(entry, "nvidia/cu13/bin").is_dir())
    done = masked(script(program), *TOOLKIT, str(wheels / piece))
    assert done.stdout.startswith("MissingDependencyError"), done.stdout + done.stderr
    assert f"pip install \\'jax-cmdbuf[aot]\\' (package {package})".replace("\\", "") in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_missing_piece_is_noticed_before_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Any:
        raise MissingDependencyError("not installed")

    monkeypatch.setattr(compile_client, "find_toolchain", missing)
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(MissingDependencyError):
        compile_for_target(CompileRequest(NOTHING, H200))
