from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_cmdbuf
from jax_cmdbuf.api import live
from jax_cmdbuf.api import plan as api
from jax_cmdbuf.api.live import CompiledHere
from jax_cmdbuf.api.plan import PlanOptions, plan, plan_executable, plan_source
from jax_cmdbuf.errors import ContainerError, InputError, TargetError
from jax_cmdbuf.executable.compile import CompileRequest, CompileResult, FunctionSource, ModuleSource
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.json_plan import plan_as_dict
from tests.report.programs import a_program

EXECUTABLE = Path(__file__).parents[1] / "data/va_remap/mlp_same/executable.bin.gz"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[CompileRequest]:
    """Replaces the compilation by a recorded executable; returns what was asked for."""
    asked: list[CompileRequest] = []

    def compile_for_target(request: CompileRequest) -> CompileResult:
        asked.append(request)
        data = gzip.decompress(EXECUTABLE.read_bytes())
        return CompileResult(data, versions={"jaxlib": "0.11.2"}, notes=("a note of the worker",))

    monkeypatch.setattr(api, "compile_for_target", compile_for_target)
    return asked


def test_a_source_with_a_colon_is_a_function(requests: list[CompileRequest]) -> None:
    plan_source(f"{__file__}:f.g", PlanOptions(shapes=("f32[2]",), xla_flags="--x"))
    plan_source("package.module:f")
    assert requests[0].source == FunctionSource(__file__, "f.g", ("f32[2]",))
    assert requests[0].xla_flags == "--x"
    assert requests[0].target.name == "h200"
    assert requests[1].source == FunctionSource("package.module", "f")


@pytest.mark.parametrize(
    "text",
    [
        "HloModule m\n",
        "module @m {}",
        "// a comment\nmodule {}",
        "#loc = loc(unknown)\n",
        '"builtin.module"() ({})',
    ],
)
def test_a_modules_text_is_compiled_gzipped_or_not(
    requests: list[CompileRequest], tmp_path: Path, text: str
) -> None:
    (tmp_path / "plain").write_text(text)
    (tmp_path / "packed.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("plain", "packed.gz"):
        plan_source(str(tmp_path / name))
        assert requests[-1].source == ModuleSource(text, str(tmp_path / name))


def test_the_worker_did_not_dump_what_was_predicted_is_a_loud_warning(requests: list[CompileRequest]) -> None:
    made = plan_source("a:f")
    assert len(made.context.warnings) == 1
    assert made.context.warnings[0].startswith("the grouping shown is not XLA's own")
    assert "tile sizes" in made.context.notes[0]
    assert "jax.default_backend()" in made.context.notes[1]
    assert "a note of the worker" in made.context.notes
    assert any("taken from target h200" in note for note in made.context.notes)


def test_an_executable_needs_no_compilation() -> None:
    made = plan_source(str(EXECUTABLE))
    assert made.executable.module == "jit_mlp_same"
    assert made.context.target_text == "h200 (NVIDIA H200)"
    assert made.context.notes == (
        "the executable does not describe its GPU: NVIDIA H200 was taken from the default target",
    )
    assert made.command_count == 16
    (trap,) = made.traps
    assert (trap.commands, trap.total) == (15, 16)
    assert (
        "NVIDIA L4 was taken from target l4"
        in plan_source(str(EXECUTABLE), PlanOptions("l4")).context.notes[0]
    )


def test_options_of_a_compilation_are_not_dropped_silently(tmp_path: Path) -> None:
    made = plan_source(str(EXECUTABLE), PlanOptions(devices=4, xla_flags="--x"))
    assert made.context.notes[0] == (
        "the executable is compiled already: --devices and --xla_flags were not used"
    )
    with pytest.raises(InputError, match="--shard goes with a function"):
        plan_source(str(EXECUTABLE), PlanOptions(shard=("x",)))


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_time_limit_is_positive(seconds: float) -> None:
    with pytest.raises(InputError, match="--timeout must be more than 0 seconds"):
        plan_source("a:f", PlanOptions(timeout_s=seconds))


def test_an_executables_own_gpu_wins_and_the_plan_says_so() -> None:
    made = plan_executable(a_program(), target="l4", arguments=("p", "x"))
    assert made.context.target_text == "NVIDIA H200"
    assert made.context.notes == (
        "the executable describes its own GPU (NVIDIA H200): --target was not used",
    )
    assert made.allocations[0].path == "p"
    with pytest.raises(TargetError):
        plan_executable(dataclasses.replace(a_program(), device=None), target="gtx")


def test_damaged_files_are_container_errors(tmp_path: Path) -> None:
    data = gzip.decompress(EXECUTABLE.read_bytes())
    for name, content in (
        ("empty", b""),
        ("random", bytes(range(256)) * 10),
        ("cut", data[: len(data) // 2]),
        ("cut.gz", EXECUTABLE.read_bytes()[:2000]),
        ("gz-of-nothing", gzip.compress(b"")),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ContainerError) as caught:
            plan_source(str(tmp_path / name))
        assert "\n" not in str(caught.value)


def test_a_module_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"HloModule \xff\xff")
    with pytest.raises(InputError, match="begins like a module's text but is not UTF-8"):
        plan_source(str(tmp_path / "m"))


@pytest.mark.aot
def test_a_live_function_is_planned_without_touching_the_environment() -> None:
    @jax.jit
    def step(params: Any, x: Any) -> Any:
        return {"w": params["w"] * 0.5}, jnp.tanh(x @ params["w"]).sum()

    made = jax_cmdbuf.plan(step, {"w": np.ones((64, 64))}, np.ones((8, 64)), target="a100")
    data = plan_as_dict(made)
    assert (data["target"], data["gpu"]) == ("a100", "NVIDIA A100-SXM4-80GB")
    assert [each["path"] for each in data["allocations"] if each["kind"] == "parameter"] == [
        "params['w']",
        "x",
    ]
    assert made.context.warnings == ()
    assert "the grouping agrees with XLA's own dump of this compilation" in made.context.notes
    assert json.dumps(data)
    assert {device.platform for device in jax.devices()} == {"cpu"}


@pytest.mark.aot
def test_what_was_compiled_for_a_gpu_elsewhere_is_planned_as_it_is(tmp_path: Path) -> None:
    class Compiled:
        def runtime_executable(self) -> Any:
            return self

        def serialize(self) -> bytes:
            return gzip.decompress(EXECUTABLE.read_bytes())

    assert plan_executable(Executable.from_compiled(Compiled())).command_count == 16


def test_a_function_compiled_here_is_planned_for_the_gpu_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = dataclasses.replace(a_program(), device=None)
    for gpu, name in (("NVIDIA L4", "NVIDIA L4"), ("another GPU", "NVIDIA H200")):
        here = CompiledHere(executable, ("p", "x"), ("out[0]", "out[1]"), gpu)
        monkeypatch.setattr(live, "live_program", lambda *_, here=here, **__: here)
        made = plan(jnp.tanh, np.zeros(3))
        assert made.context.gpu == name
        assert made.allocations[2].path == "out[1]"


def test_plan_passes_its_options_on(requests: list[CompileRequest]) -> None:
    plan(jnp.tanh, np.zeros(3), target="l4", devices=2, xla_flags="--x")
    (request,) = requests
    assert (request.target.name, request.devices, request.xla_flags) == ("l4", 2, "--x")
    assert isinstance(request.source, ModuleSource)
