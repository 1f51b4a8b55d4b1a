"""To its caller a decorated function is the jitted one."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_cmdbuf
from jax_cmdbuf.api.decorator import CommandBufferFunction, RuntimeName, command_buffer
from jax_cmdbuf.api.observation import reset_simulation
from jax_cmdbuf.errors import InputError
from tests.api.simulated_programs import matrix, program_of, two_gemm
from xla_flags.options import CommandBufferUpdateMode

NOTHING = b"no plan: only the function is of interest here"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("JAX_CMDBUF_MODE", "JAX_CMDBUF_OBSERVE", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    reset_simulation()
    yield
    reset_simulation()


def function(tree: Any, x: Any, *, scale: Any = 2.0) -> Any:
    """Sums and scales."""
    return {"sum": tree["a"] + x * scale, "pair": (tree["b"], x)}


def assert_identical(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (mine.dtype, mine.weak_type, mine.sharding) == (
            theirs.dtype,
            theirs.weak_type,
            theirs.sharding,
        )
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (({"a": jnp.arange(3.0), "b": 1}, 2), {}),
        (({"a": 1, "b": np.ones(2)}, jnp.int8(3)), {"scale": 3}),
        (({"a": jnp.ones(2, jnp.bfloat16), "b": None},), {"x": 1.5, "scale": jnp.float32(2)}),
    ],
)
def test_results_trees_and_types_are_the_jitted_function_s(args: Any, kwargs: Any) -> None:
    decorated = command_buffer(function, plan=NOTHING)
    assert_identical(decorated(*args, **kwargs), jax.jit(function)(*args, **kwargs))


@pytest.mark.parametrize(
    "decorate",
    [
        lambda: command_buffer(function),
        lambda: command_buffer()(function),
        lambda: command_buffer(update_mode="SKIP_TEMP")(function),
        lambda: command_buffer(jax.jit(function)),
        lambda: command_buffer(command_buffer(function)),
    ],
)
def test_every_form_gives_one_decorated_function(decorate: Any) -> None:
    decorated = decorate()
    assert isinstance(decorated, CommandBufferFunction)
    assert (decorated.__name__, decorated.__doc__) == ("function", "Sums and scales.")
    assert decorated.names == ("tree", "x")
    assert repr(decorated).startswith("<command_buffer <PjitFunction")
    lowered = decorated.lower({"a": 1.0, "b": 2.0}, 3.0)
    assert "jit_function" in lowered.as_text()
    assert decorated.eval_shape({"a": 1.0, "b": 2.0}, 3.0)["sum"].shape == ()


def test_it_is_public() -> None:
    assert jax_cmdbuf.command_buffer is command_buffer


def test_options_of_jit_are_passed_on() -> None:
    decorated = command_buffer(
        lambda n, x: x * n, static_argnums=0, donate_argnums=1, plan=NOTHING, update_mode="SKIP_PROFILED"
    )
    x = jnp.ones(4)
    np.testing.assert_array_equal(decorated(3, x), np.full(4, 3.0))
    assert x.is_deleted()
    assert decorated.observed.mode is CommandBufferUpdateMode.SKIP_PROFILED


def test_methods_are_bound() -> None:
    class Model:
        factor = 3

        @functools.partial(command_buffer, static_argnums=0, plan=NOTHING)
        def scale(self, x: Any) -> Any:
            return x * self.factor

    assert Model().scale(jnp.float32(2)) == 6
    assert isinstance(Model.scale, CommandBufferFunction)


def test_transformations_see_the_function() -> None:
    step = two_gemm()
    a, b, c = matrix(1), matrix(2), matrix(3)

    def plain(a: Any, b: Any, c: Any) -> Any:
        return (a @ b) @ c

    def through(transform: Any) -> None:
        assert_identical(transform(step), transform(plain))

    through(lambda f: jax.jit(f)(a, b, c))
    through(lambda f: jax.grad(lambda a: jax.jit(f)(a, b, c).sum())(a))
    through(lambda f: jax.jit(jax.vmap(f, (0, None, None)))(jnp.stack([a, b]), b, c))
    through(lambda f: jax.lax.scan(lambda h, _: (jax.jit(f)(h, b, c), None), a, length=2)[0])
    through(lambda f: jax.jvp(jax.jit(f), (a, b, c), (b, c, a)))


def test_default_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert two_gemm(update_mode=None).observed.mode is CommandBufferUpdateMode.ALWAYS_UPDATE
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_command_buffer_update_mode=SKIP_TEMP")
    assert two_gemm(update_mode=None).observed.mode is CommandBufferUpdateMode.SKIP_TEMP
    monkeypatch.setenv("JAX_CMDBUF_MODE", "SKIP_PROFILED")
    assert two_gemm(update_mode=None).observed.mode is CommandBufferUpdateMode.SKIP_PROFILED
    assert two_gemm(update_mode="SKIP_TEMP").observed.mode is CommandBufferUpdateMode.SKIP_TEMP


def test_it_passes_for_a_jitted_function() -> None:
    decorated = command_buffer(lambda x: x * 2, plan=NOTHING)
    assert isinstance(decorated, jax.stages.Wrapped)
    exported = jax.export.export(decorated)(jax.ShapeDtypeStruct((3,), jnp.float32))
    assert exported.call(jnp.ones(3)).tolist() == [2, 2, 2]


def test_what_is_jitted_around_it_has_options_of_its_own() -> None:
    inner = command_buffer(lambda x: x * 2, plan=NOTHING, update_mode="SKIP_TEMP")
    assert inner.observed.mode is CommandBufferUpdateMode.SKIP_TEMP
    outer = command_buffer(jax.jit(inner), plan=NOTHING, update_mode="SKIP_PROFILED")
    assert outer.observed.mode is CommandBufferUpdateMode.SKIP_PROFILED


def test_defaults_are_read_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under absl, where the command line is parsed after the functions are decorated."""
    decorated = two_gemm(update_mode=None)
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_command_buffer_update_mode=SKIP_TEMP")
    monkeypatch.setenv("JAX_CMDBUF_TARGET", "h100")
    decorated(matrix(), matrix(), matrix())
    monkeypatch.delenv("XLA_FLAGS")
    assert decorated.observed.mode is CommandBufferUpdateMode.SKIP_TEMP
    assert decorated.observed.target == "h100"
    assert two_gemm(target="l4").observed.target == "l4"


def test_the_default_runtime_is_read_when_decorating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_CMDBUF_RUNTIME", "xla")
    assert command_buffer(function).runtime_name is RuntimeName.XLA
    assert command_buffer(function, runtime="simulated").runtime_name is RuntimeName.SIMULATED


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"runtime": "gpu"}, "runtime is 'gpu'; it is one of auto, xla, simulated"),
        ({"update_mode": "NEVER"}, "update_mode"),
        ({"fun": 3}, "decorates a function, not 3"),
        (
            {"fun": jax.jit(function), "donate_argnums": 0},
            "function is jitted already: give donate_argnums to",
        ),
    ],
)
def test_options_without_sense_are_one_sentence(options: dict[str, Any], text: str) -> None:
    fun = options.pop("fun", function)
    with pytest.raises(InputError, match=text):
        command_buffer(fun, **options)


def test_runtimes_have_names() -> None:
    assert {"auto", "xla", "simulated"} <= set(RuntimeName)


def test_observation_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_CMDBUF_OBSERVE", "off")
    assert not two_gemm().observes
    assert two_gemm(observe=True).observes


def test_sharded_arguments_keep_their_shardings(run_python: Any) -> None:
    done = run_python(
        """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from jax_cmdbuf import command_buffer
mesh = jax.make_mesh((4,), ("d",))
x = jax.device_put(jnp.arange(32.0).reshape(8, 4), NamedSharding(mesh, P("d")))
step = command_buffer(lambda x: jnp.tanh(x) * 2, plan=b"-")
one, other = step(x), jax.jit(lambda x: jnp.tanh(x) * 2)(x)
assert one.sharding == other.sharding, (one.sharding, other.sharding)
np.testing.assert_array_equal(one, other)
print("same")
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    assert done.stdout.strip() == "same", done.stderr


def test_one_program_per_signature() -> None:
    step = two_gemm()
    for _ in range(3):
        step(matrix(1), matrix(2), matrix(3))
    assert program_of(step).count == 3
