from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api import live
from jax_cmdbuf.api.live import CompiledHere, live_program
from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile import ModuleSource


def step(params: Any, x: Any) -> Any:
    return {"w": params["w"] * 0.5}, jnp.tanh(x @ params["w"]).sum()


ARGUMENTS = ({"w": np.ones((8, 8))}, jax.ShapeDtypeStruct((4, 8), jnp.float32))


def text_of(program: Any, *args: Any, **kwargs: Any) -> str:
    given = live_program(program, args, kwargs, native=True)
    assert isinstance(given, ModuleSource)
    return given.text


@pytest.mark.parametrize("program", [step, jax.jit(step)])
def test_a_function_is_traced_for_cuda_with_its_argument_paths(program: Any) -> None:
    text = text_of(program, *ARGUMENTS)
    assert "module @jit_step" in text
    assert "params['w']" in text
    assert "tensor<8x8xf32>" in text  # NumPy's f64, as jit takes it


def test_platform_dependent_code_takes_its_cuda_branch() -> None:
    def branch(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cuda=jnp.sin, default=jnp.cos)

    text = text_of(jax.jit(branch), np.zeros(3, np.float32))
    assert "sine" in text
    assert "cosine" not in text


def test_keyword_and_static_arguments() -> None:
    jitted = jax.jit(lambda x, *, n, scale: x * n * scale, static_argnames="n")
    text = text_of(jitted, np.zeros(3, np.float32), n=3, scale=jnp.ones(()))
    assert "3.000000e+00" in text
    assert "scale" in text


def test_a_sharding_over_several_devices_stays() -> None:
    mesh = jax.sharding.AbstractMesh((1,), ("x",))
    one = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    assert live._shape_of(jax.ShapeDtypeStruct((4,), jnp.float32, sharding=one)).sharding is None
    two = jax.sharding.NamedSharding(jax.sharding.AbstractMesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))
    assert live._shape_of(jax.ShapeDtypeStruct((4,), jnp.float32, sharding=two)).sharding == two
    assert live._shape_of(3) == 3


def test_a_lowered_function_is_taken_as_it_is() -> None:
    lowered = jax.jit(step).trace(*ARGUMENTS).lower(lowering_platforms=("cuda",))
    assert text_of(lowered) == lowered.as_text(debug_info=True)
    with pytest.raises(InputError, match="a Lowered has its arguments already"):
        live_program(lowered, ARGUMENTS, {}, native=True)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InputError, match="cannot plan a int"):
        live_program(3, (), {}, native=True)


def test_a_function_compiled_for_the_cpu_is_refused() -> None:
    compiled = jax.jit(step).lower(*ARGUMENTS).compile()
    with pytest.raises(InputError, match="compiled for a CPU"):
        live_program(compiled, (), {}, native=True)


def test_on_a_gpu_the_process_compiles_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native way, with the CPU's compiler in place of a GPU's; only the decoding is replaced."""
    monkeypatch.setattr(live, "_has_gpu", lambda: True)
    monkeypatch.setattr(live.Executable, "from_compiled", lambda compiled: compiled.runtime_executable())
    given = live_program(jax.jit(step), ARGUMENTS, {}, native=True)
    assert isinstance(given, CompiledHere)
    assert type(given.executable).__name__ == "LoadedExecutable"
    assert given.arguments == ("params['w']", "x")
    assert given.results == ("out[0]['w']", "out[1]")
    assert given.gpu == jax.devices()[0].device_kind
    assert isinstance(live_program(jax.jit(step), ARGUMENTS, {}, native=False), ModuleSource)


class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x: Any) -> Any:
        return x * 2


def test_a_jitted_method_is_called_with_its_object() -> None:
    assert "x" in text_of(Model().step, np.zeros(3))
