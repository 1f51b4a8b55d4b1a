"""Programs with a probe compile where its handler is not, either way of compiling; others' targets do not."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from jax_cmdbuf.errors import CmdbufError
from jax_cmdbuf.executable import compile_ffi
from jax_cmdbuf.executable.compile import CompileRequest, FunctionSource, ModuleSource, compile_for_target
from jax_cmdbuf.executable.compile_ffi import OUR_TARGETS, register_stand_ins
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.ffi_traits import FFI_TRAITS
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.executable.thunks import CustomCallInfo

PROGRAM = """
module @probed {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    stablehlo.custom_call @TARGET(%arg0)
        {api_version = 4 : i32, backend_config = {}, has_side_effect = true} : (tensor<8xf32>) -> ()
    %0 = stablehlo.sine %arg0 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""
FUNCTION = """
import jax

def probed(x):
    jax.ffi.ffi_call("jax_cmdbuf.probe", (), has_side_effect=True)(x)
    return x + 1
"""


def targets(source: FunctionSource | ModuleSource) -> list[str]:
    """Targets of the custom calls in what is compiled."""
    result = compile_for_target(CompileRequest(source, load_target("h200")))
    executable = Executable.from_bytes(result.serialized)
    return [each.info.target_name for each in executable.thunks if isinstance(each.info, CustomCallInfo)]


@pytest.mark.aot
def test_a_module_with_a_probe_is_compiled() -> None:
    text = PROGRAM.replace("TARGET", '"jax_cmdbuf.probe"')
    assert targets(ModuleSource(text, "probed.mlir")) == ["jax_cmdbuf.probe"]


@pytest.mark.aot
def test_a_function_with_a_probe_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FUNCTION)
    source = FunctionSource(str(tmp_path / "program.py"), "probed", ("f32[8]",))
    assert targets(source) == ["jax_cmdbuf.probe"]


@pytest.mark.aot
def test_targets_of_others_are_refused_as_ever() -> None:
    with pytest.raises(CmdbufError, match="nobodys_target"):
        targets(ModuleSource(PROGRAM.replace("TARGET", "nobodys_target"), "foreign.mlir"))


def test_our_targets_are_known_not_to_be_recordable() -> None:
    assert [FFI_TRAITS[target] for target in OUR_TARGETS] == [False]


def test_no_plugin_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compile_ffi, "cuda_plugin_directory", lambda: None)
    assert register_stand_ins() == ()
    monkeypatch.setattr(compile_ffi, "cuda_plugin_directory", lambda: tmp_path)
    assert register_stand_ins() == ()


@pytest.mark.parametrize("has_api", [True, False])
def test_the_stand_in_answers_in_the_callers_version(has_api: bool) -> None:
    metadata = compile_ffi._Metadata(traits=7)
    question = compile_ffi._Question(type=1, metadata=ctypes.pointer(metadata))
    api = compile_ffi._FfiApi(version=compile_ffi._Version(major=2, minor=9))
    frame = compile_ffi._Frame(question=ctypes.pointer(question))
    if has_api:
        frame.api = ctypes.pointer(api)
    compile_ffi._stand_in(ctypes.addressof(frame))
    answer = (metadata.version.major, metadata.version.minor, metadata.traits)
    assert answer == ((2, 9, 0) if has_api else (0, 0, 7))
