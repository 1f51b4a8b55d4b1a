from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jax_cmdbuf.executable import compile_worker
from jax_cmdbuf.executable.compile_worker import main
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.executable.toolchain import find_toolchain

pytestmark = pytest.mark.aot


def ask(directory: Path, **program: Any) -> dict[str, Any]:
    request = {
        "program": program,
        "target": load_target("h200").text,
        "devices": None,
        "shard": None,
        "cuda_data_dir": str(find_toolchain(os.environ).root),
    }
    (directory / "request.json").write_text(json.dumps(request))
    assert main([str(directory)]) == 0
    answer: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return answer


def test_a_module_is_answered_with_an_executable_and_dumps(tmp_path: Path) -> None:
    text = """
    module @small {
      func.func public @main(%arg0: tensor<8xf32> loc("x")) -> (tensor<8xf32> {jax.result_info = "result"}) {
        %0 = stablehlo.sine %arg0 : tensor<8xf32>
        return %0 : tensor<8xf32>
      }
    }
    """
    answer = ask(tmp_path, text=text, name="small.mlir")
    assert answer["arguments"] == ["x"]
    assert answer["results"] == ["out"]
    assert list(answer["thunk_dumps"]) == ["thunk_sequence"]
    assert (tmp_path / "executable.bin").stat().st_size > 1000


def test_our_own_errors_keep_their_type(tmp_path: Path) -> None:
    answer = ask(tmp_path, text="HloModule broken", name="broken.txt")
    assert answer["error"] == "InputError"
    assert answer["message"].startswith("broken.txt is not HLO text")


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (MemoryError(), "CompileError", "out of memory while compiling"),
        (RuntimeError("libdevice not found at ./x"), "MissingDependencyError", "nvidia-nvvm"),
        (RuntimeError("new"), "CompileError", "XLA refused the program: RuntimeError: new"),
    ],
)
def test_any_other_error_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, error: str, message: str
) -> None:
    def fail(request: object, directory: object) -> None:
        raise raised

    monkeypatch.setattr(compile_worker, "_compile", fail)
    answer = ask(tmp_path)
    assert answer["error"] == error
    assert message in answer["message"]


def test_importing_it_does_not_import_jax() -> None:
    code = "import sys, jax_cmdbuf.executable.compile_worker; print('jax' in sys.modules)"
    root = Path(compile_worker.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "flags")])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
