from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile_devices import Compiled
from jax_cmdbuf.executable.compile_module import compile_module
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.executable.toolchain import find_toolchain

pytestmark = pytest.mark.aot


def step(params, x):  # type: ignore[no-untyped-def]
    return {"w": params["w"] * 0.5}, jnp.tanh(x @ params["w"]).sum()


@pytest.fixture(scope="module")
def lowered() -> jax.stages.Lowered:
    w, x = jax.ShapeDtypeStruct((8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32)
    return jax.jit(step, donate_argnums=0).trace({"w": w}, x).lower(lowering_platforms=("cuda",))


def build(text: str, devices: int | None = None, **options: str) -> Compiled:
    options |= {"xla_gpu_cuda_data_dir": str(find_toolchain(os.environ).root)}
    return compile_module(text, "the text", load_target("h200").text, devices, options)


def test_stablehlo_with_locations_has_every_path(lowered: jax.stages.Lowered) -> None:
    compiled = build(lowered.as_text(debug_info=True))
    assert compiled.arguments == ("params['w']", "x")
    assert compiled.results == ("out[0]['w']", "out[1]")


def test_stablehlo_without_locations_has_the_results_paths(lowered: jax.stages.Lowered) -> None:
    compiled = build(lowered.as_text())
    assert compiled.arguments == ()
    assert compiled.results == ("out[0]['w']", "out[1]")
    assert Executable.from_bytes(compiled.serialized).module == "jit_step"


def test_hlo_text(lowered: jax.stages.Lowered) -> None:
    """HLO goes to the plugin by a way of its own; the same program comes out."""
    executable = Executable.from_bytes(build(lowered.as_text(dialect="hlo")).serialized)
    assert executable.module == "jit_step"
    assert [
        each.parameter_number for each in executable.allocations if each.is_parameter_aliased_with_output
    ] == [0]


def test_the_module_says_how_many_devices() -> None:
    text = """
    module @two attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
      func.func public @main(%arg0: tensor<8xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<8xf32> {
        %0 = stablehlo.add %arg0, %arg0 : tensor<8xf32>
        return %0 : tensor<8xf32>
      }
    }
    """
    assert Executable.from_bytes(build(text).serialized).num_partitions == 2
    assert Executable.from_bytes(build(text, devices=1).serialized).num_partitions == 1


def test_what_xla_dumps_gives_the_same_program_again(lowered: jax.stages.Lowered, tmp_path: Path) -> None:
    """Before optimizations as after them: optimized HLO keeps its fusions and its schedule."""
    original = build(lowered.as_text(debug_info=True), xla_dump_to=str(tmp_path))
    for end in ("before_optimizations.txt", "gpu_after_optimizations.txt"):
        (dump,) = tmp_path.glob(f"*{end}")
        again = build(dump.read_text())
        first, second = (Executable.from_bytes(each.serialized) for each in (original, again))
        assert [(thunk.kind, thunk.name, thunk.uses) for thunk in first.thunks] == [
            (thunk.kind, thunk.name, thunk.uses) for thunk in second.thunks
        ]
        assert first.allocations == second.allocations
        assert second.parameter_paths == original.arguments
        assert bool(again.notes) == end.startswith("gpu_after")


def test_a_mesh_in_hlo_text_counts() -> None:
    text = """
    HloModule two, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}
    ENTRY main {
      x = f32[8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}]>"}
      ROOT sum = f32[8] add(x, x)
    }
    """
    assert Executable.from_bytes(build(text).serialized).num_partitions == 4


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("HloModule broken\nENTRY {", r"the text is not HLO text that jaxlib can read: "),
        ("module @broken { nonsense }", r"the text is not MLIR text that jaxlib can read: "),
        ("module @empty {}", r"the module has no function named main"),
    ],
)
def test_a_text_that_is_none(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        build(text)
    assert "\n" not in str(caught.value)
