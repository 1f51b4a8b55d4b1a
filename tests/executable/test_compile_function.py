from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jax_cmdbuf.errors import CmdbufError, CompileError, InputError, MissingDependencyError
from jax_cmdbuf.executable.compile_devices import Compiled, topology_devices
from jax_cmdbuf.executable.compile_function import compile_function
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.executable.toolchain import find_toolchain

pytestmark = pytest.mark.aot

PROGRAM = """
import dataclasses, functools
import jax, jax.numpy as jnp, numpy as np
S = jax.ShapeDtypeStruct

@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object

def step(params, unused, *more, scale):
    y = more[0] @ params["layer_0"].w + params["layer_0"].b
    return jax.tree.map(lambda leaf: leaf * scale, params), y.mean()
step = jax.jit(step, donate_argnums=0)

def step_args():
    return {"layer_0": Layer(S((8, 8), jnp.float32), np.zeros((8,)))}, S((3,), jnp.int32), jnp.ones((4, 8))

def step_kwargs():
    return {"scale": 0.5}

def plain(x, activation):
    return activation(x), "a string"

def plain_args():
    return np.zeros((8, 8), np.float32), jnp.tanh

def count():
    return jnp.arange(10) * 2

counted = jax.jit(count)

def static(x, n, name):
    return x * n if name == "times" else x
static = jax.jit(static, static_argnums=(1, 2))

def static_args():
    return S((4,), jnp.float32), 3, "times"

class Namespace:
    @staticmethod
    def inner(x):
        return x + 1

    @staticmethod
    def inner_args():
        return S((4,), jnp.float32)

class Model:
    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def step(self, x):
        return x + 1

    def step_args(self):
        return S((4,), jnp.float32)

model = Model()

def sharded(x):
    return (x * 2).sum()

def sharded_args(mesh):
    spec = jax.sharding.PartitionSpec("data")
    return S((8, 4), jnp.float32, sharding=jax.sharding.NamedSharding(mesh, spec)),

def two(x, y): return x @ y
def one(x): return x + 1
def stops(x): raise SystemExit(3)
def calls_back(x):
    jax.debug.print("{}", x)
    return x
def solves(x): return jnp.linalg.cholesky(x)
def bad_args(): return 1 / 0
def bad(x): return x
odd = lambda: 1
odd_kwargs = lambda: [1]
number = 3
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "a_program_to_plan.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(autouse=True)
def restored_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "program" in name:
            del sys.modules[name]


def build(file: Path | str, function: str, *shapes: str, devices: int = 1, shard: Any = None) -> Compiled:
    root = find_toolchain(os.environ).root
    gpus = topology_devices(load_target("h200").text, devices)
    return compile_function(str(file), function, shapes, gpus, shard, {"xla_gpu_cuda_data_dir": str(root)})


def test_a_jitted_function_keeps_donation_and_names_everything_by_path(file: Path) -> None:
    compiled = build(file, "step")
    assert compiled.arguments == ("params['layer_0'].w", "params['layer_0'].b", "more[0]", "scale")
    assert compiled.results == ("out[0]['layer_0'].w", "out[0]['layer_0'].b", "out[1]")
    executable = Executable.from_bytes(compiled.serialized)
    donated = {
        each.parameter_number for each in executable.allocations if each.is_parameter_aliased_with_output
    }
    assert donated == {0, 1}


def test_leaves_that_are_no_arrays_stay_constant(file: Path) -> None:
    compiled = build(file, "plain")
    assert compiled.arguments == ("x",)
    assert compiled.results == ("out[0]",)


def test_static_arguments_are_left_alone(file: Path) -> None:
    assert build(file, "static").arguments == ("x",)


@pytest.mark.parametrize("function", ["count", "counted"])
def test_a_function_without_arguments_is_compiled_for_the_gpu(file: Path, function: str) -> None:
    compiled = build(file, function)
    executable = Executable.from_bytes(compiled.serialized)
    assert executable.thunks
    assert compiled.results == ("out",)


def test_a_function_inside_a_class(file: Path) -> None:
    assert build(file, "Namespace.inner").arguments == ("x",)


def test_a_jitted_method_is_called_with_its_object(file: Path) -> None:
    compiled = build(file, "model.step")
    assert compiled.arguments == ("x",)
    assert Executable.from_bytes(compiled.serialized).allocations[0].is_parameter_aliased_with_output


def test_shapes_replace_the_arguments_beside_it(file: Path) -> None:
    executable = Executable.from_bytes(build(file, "two", "bf16[4,8]", "bf16[8,2]").serialized)
    assert executable.parameter_shapes == ("bf16[4,8]", "bf16[8,2]")


def test_several_devices(file: Path) -> None:
    compiled = build(file, "sharded", devices=2)
    executable = Executable.from_bytes(compiled.serialized)
    assert executable.num_partitions == 2
    assert executable.parameter_shapes == ("f32[4,4]",)
    assert "carries a sharding" in compiled.notes[0]


def test_equinox_modules_and_their_own_jit(tmp_path: Path) -> None:
    eqx = pytest.importorskip("equinox")
    assert eqx
    file = tmp_path / "equinox_program.py"
    file.write_text("""
import equinox as eqx, jax, jax.numpy as jnp
@eqx.filter_jit(donate="all")
def update(model, x):
    grads = eqx.filter_grad(lambda model: jax.vmap(model)(x).sum())(model)
    return eqx.apply_updates(model, grads)
def update_args():
    return eqx.filter_eval_shape(eqx.nn.MLP, 4, 4, 8, 1, key=jax.random.key(0)), jnp.ones((3, 4))
""")
    compiled = build(file, "update")
    assert compiled.arguments[0] == "model.layers[0].weight"
    assert compiled.results[0] == "out.layers[0].weight"
    executable = Executable.from_bytes(compiled.serialized)
    assert any(each.is_parameter_aliased_with_output for each in executable.allocations)
    assert compiled.notes == ("JAX: Some donated buffers were not usable: float32[3,4].",)


@pytest.mark.parametrize(
    ("function", "shapes", "error", "sentence"),
    [
        ("nope", (), InputError, r"has no function nope; it has .*count.*step"),
        ("number", (), InputError, r":number is a int, not a function"),
        (
            "two",
            (),
            InputError,
            r"no arguments for .*: define two_args\(\) beside it, .* --arg='f32\[128,256\]'",
        ),
        (
            "two",
            ("f32[2,3]", "f32[2,3]"),
            InputError,
            r"tracing .* failed: TypeError: .* \(.*program.*, line \d+\)",
        ),
        ("two", ("f32[2",), InputError, r"'f32\[2' is not an XLA shape"),
        (
            "one",
            ("f64[2]",),
            InputError,
            r"an --arg of float64 needs 64-bit types switched on: set JAX_ENABLE",
        ),
        (
            "bad",
            (),
            InputError,
            r"calling bad_args failed: ZeroDivisionError: division by zero \(.*, line \d+\)",
        ),
        ("odd", (), InputError, r"odd_kwargs\(\) must return a dictionary, not a list"),
        ("calls_back", ("f32[2]",), CompileError, r"calls back into Python"),
        ("solves", ("f32[4,4]",), MissingDependencyError, r"pip install jax-cuda13-plugin"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    file: Path, function: str, shapes: tuple[str, ...], error: type[CmdbufError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence) as caught:
        build(file, function, *shapes)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_module_that_fails(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file: nowhere\.py"):
        build("nowhere.py", "f")
    with pytest.raises(InputError, match=r"importing no_such_package failed: ModuleNotFoundError"):
        build("no_such_package", "f")
    (tmp_path / "module.mlir").write_text("module {}")
    with pytest.raises(InputError, match=r"module\.mlir is not a Python file"):
        build(tmp_path / "module.mlir", "main")
    users = tmp_path / "jax_cmdbuf"  # a user's folder may well have this package's name
    users.mkdir()
    (users / "bad_program.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(InputError, match=r"failed: SystemExit: 3 \(bad_program\.py, line 2\)"):
        build(users / "bad_program.py", "f")
