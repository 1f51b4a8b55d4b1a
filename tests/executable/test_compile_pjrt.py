from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jax_cmdbuf._jax import hlo_text_to_proto
from jax_cmdbuf.errors import MissingDependencyError
from jax_cmdbuf.executable import compile_pjrt
from jax_cmdbuf.executable.compile_pjrt import PjrtError, compile_hlo
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.executable.toolchain import cuda_plugin_directory

pytestmark = pytest.mark.aot
HLO = """
HloModule small
ENTRY main {
  x = f32[8] parameter(0)
  ROOT sum = f32[8] add(x, x)
}
"""


def plugin() -> Path:
    directory = cuda_plugin_directory()
    assert directory is not None
    return directory / "xla_cuda_plugin.so"


def test_hlo_becomes_an_executable() -> None:
    text = load_target("h200").text
    data = compile_hlo(hlo_text_to_proto(HLO), b"", plugin=plugin(), target_text=text, devices=1)
    executable = Executable.from_bytes(data)
    assert executable.module == "small"
    assert len(executable.thunks) == 1


def test_the_plugins_errors_keep_their_message() -> None:
    with pytest.raises(PjrtError, match="Failed to parse GpuTargetConfigProto"):
        compile_hlo(b"", b"", plugin=plugin(), target_text="nonsense", devices=1)


def test_what_is_no_plugin_is_refused(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.so"
    nothing.touch()
    for library in (nothing, Path("libc.so.6")):
        with pytest.raises(MissingDependencyError, match="is not a PJRT plugin"):
            compile_hlo(b"", b"", plugin=library, target_text="", devices=1)


def test_another_major_version_is_refused_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_pjrt, "_API_MAJOR", 1)

    def called(*_: Any) -> None:
        raise AssertionError("a function was called")

    monkeypatch.setattr(compile_pjrt._Api, "call", called)
    with pytest.raises(MissingDependencyError, match=r"xla_cuda_plugin\.so speaks PJRT 0\.\d+, not 1"):
        compile_hlo(b"", b"", plugin=plugin(), target_text="", devices=1)
