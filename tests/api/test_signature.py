"""Arguments of a call: leaves, paths, donation, and keys that tell executables apart."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.signature import is_tracing, read_arguments


def f(params, x, scale, *rest, mode="fast"):
    return params["w"] * x * scale


def test_paths_have_the_parameters_names():
    jitted = jax.jit(f, static_argnames="mode", static_argnums=2, donate_argnums=0)
    args = ({"w": jnp.ones(2), "b": [jnp.ones(()), np.ones(3)]}, 1.0, 2, jnp.ones(1))
    found = read_arguments(jitted, ("params", "x", "scale"), args, {"mode": "slow"})
    assert found.paths == ("params['b'][0]", "params['b'][1]", "params['w']", "x", "args[3]")
    assert found.donated == (True, True, True, False, False)
    assert [
        leaf is each
        for leaf, each in zip(found.leaves, jax.tree.leaves((args[0], 1.0, args[3])), strict=True)
    ]


def test_keyword_arguments_have_theirs():
    found = read_arguments(jax.jit(f), ("params", "x", "scale"), ({"w": 1.0},), {"x": 2.0, "scale": 3.0})
    assert found.paths == ("params['w']", "scale", "x")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((jnp.ones(3), 1.0), (jnp.zeros(3), 2.0), True),
        ((jnp.ones(3), 1.0), (jnp.ones(4), 1.0), False),
        ((jnp.ones(3), 1.0), (jnp.ones(3, jnp.int32), 1.0), False),
        ((jnp.ones(3), 1.0), (jnp.ones(3), jnp.float32(1)), False),
        ((jnp.ones(3), 1.0), (np.ones(3, np.float32), 1.0), False),
    ],
)
def test_keys_are_equal_for_calls_of_one_executable(one, other, same):
    jitted = jax.jit(lambda a, b: a * b)
    keys = [read_arguments(jitted, ("a", "b"), args, {}).key for args in (one, other)]
    assert (keys[0] == keys[1]) is same
    if same:
        assert hash(keys[0]) == hash(keys[1])


def test_static_values_tell_keys_apart():
    jitted = jax.jit(lambda a, n: a * n, static_argnums=-1)
    keys = [read_arguments(jitted, ("a", "n"), (jnp.ones(2), n), {}).key for n in (1, 1, 2)]
    assert keys[0] == keys[1] != keys[2]


def test_tracers_are_seen():
    seen = []
    jax.jit(lambda x: seen.append(is_tracing({"a": (x, 1)})))(1.0)
    jax.grad(functools.partial(lambda x: seen.append(is_tracing(x)) or x))(1.0)
    assert seen == [True, True]
    assert not is_tracing({"a": (jnp.ones(1), 1, None)})


def test_shardings_that_place_alike_are_one_signature(run_python):
    done = run_python(
        """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding
from jax_cmdbuf.api.signature import read_arguments
mesh = jax.make_mesh((4,), ("d",))
jitted = jax.jit(lambda x: x @ x)
def key(sharding):
    return read_arguments(jitted, ("x",), (jax.device_put(jnp.ones((8, 8)), sharding),), {}).key
spelled = [key(NamedSharding(mesh, spec)) for spec in (P(), P(None), P(None, None))]
assert len(set(spelled)) == 1, spelled
assert key(NamedSharding(mesh, P("d"))) not in spelled
assert key(SingleDeviceSharding(jax.devices()[0])) != key(SingleDeviceSharding(jax.devices()[1]))
# As JAX has it: the second spelling finds the executable of the first.
w = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P()))
jitted = jax.jit(lambda x: x @ x)
keys = []
for _ in range(3):
    keys.append(read_arguments(jitted, ("x",), (w,), {}).key)
    w = jitted(w)
assert w.sharding.spec == P(None, None), w.sharding
assert len(set(keys)) == 1
print("alike")
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    assert done.stdout.strip() == "alike", done.stderr
