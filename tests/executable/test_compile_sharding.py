from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile_devices import data_mesh, topology_devices
from jax_cmdbuf.executable.compile_sharding import is_array, place, replicated, struct
from jax_cmdbuf.executable.targets import load_target

pytestmark = pytest.mark.aot


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return data_mesh(topology_devices(load_target("h200").text, 2))


def step(params: Any, batch: Any, rng: Any = None, *more: Any, scale: Any = 1.0) -> Any:
    return params


def specs(tree: Any) -> list[Any]:
    return [leaf.sharding.spec for leaf in jax.tree.leaves(tree)]


SPLIT, WHOLE = PartitionSpec("data"), PartitionSpec()


def test_what_counts_as_an_array() -> None:
    assert all(map(is_array, (np.zeros(3), np.float32(1), jnp.zeros(3), jax.ShapeDtypeStruct((), jnp.int32))))
    assert not any(map(is_array, (1, 2.0, "text", None, jnp.tanh)))


def test_a_struct_keeps_type_and_weakness_and_takes_jits_view_of_64_bits() -> None:
    assert struct(np.zeros((2, 3)), None).dtype == jnp.float32
    assert struct(jnp.asarray(1.0), None).weak_type
    assert struct(jax.random.key(0), None).dtype == jax.random.key(0).dtype


def test_one_device_takes_everything(mesh: jax.sharding.Mesh) -> None:
    one = data_mesh((mesh.devices.flat[0],))
    (params, batch), keywords, notes = place(
        step, ({"w": np.zeros((4, 4))}, 3), {"scale": np.ones(())}, one, None
    )
    assert params["w"].sharding == keywords["scale"].sharding == SingleDeviceSharding(mesh.devices.flat[0])
    assert batch == 3
    assert notes == ()


def test_by_rule_a_batch_is_split_and_the_state_is_not(mesh: jax.sharding.Mesh) -> None:
    batch = {"x": np.zeros((8, 3)), "y": np.zeros((8,))}
    key = np.zeros((2,), np.uint32)
    arguments = ({"w": np.zeros((8, 8))}, batch, key, np.zeros((3, 2)), np.zeros((4,)))
    placed, _, (note,) = place(step, arguments, {"scale": np.ones((2,))}, mesh, None)
    assert [spec for argument in placed for spec in specs(argument)] == [
        WHOLE,
        SPLIT,
        SPLIT,
        WHOLE,
        WHOLE,
        SPLIT,
    ]
    assert "split by the leading axis: batch, args[4]" in note.replace("args[1]", "args[4]")


def test_a_function_of_one_argument_is_split_by_it(mesh: jax.sharding.Mesh) -> None:
    (x,), _, _ = place(jnp.tanh, (np.zeros((4, 4)),), {}, mesh, None)
    assert x.sharding.spec == SPLIT


def test_names_the_user_gives_win(mesh: jax.sharding.Mesh) -> None:
    arguments = (np.zeros((4, 4)), np.zeros((4, 4)))
    (params, batch), keywords, _ = place(step, arguments, {"scale": np.ones((2,))}, mesh, ("params", "scale"))
    assert (params.sharding.spec, batch.sharding.spec, keywords["scale"].sharding.spec) == (
        SPLIT,
        WHOLE,
        SPLIT,
    )
    (params, batch), _, (note,) = place(step, arguments, {}, mesh, ())
    assert specs((params, batch)) == [WHOLE, WHOLE]
    assert "nothing" in note


def test_an_unknown_name_is_refused(mesh: jax.sharding.Mesh) -> None:
    with pytest.raises(
        InputError, match=r"--shard=bacth: the function has no such argument \(it has params, batch\)"
    ):
        place(step, (np.zeros(2), np.zeros(2)), {}, mesh, ("bacth",))


def test_what_cannot_be_split_is_refused_by_name_only(mesh: jax.sharding.Mesh) -> None:
    arguments = ({"w": np.zeros((4, 4))}, {"x": np.zeros((3, 4)), "n": np.zeros(())})
    with pytest.raises(InputError, match="--shard=batch: no array of it has a leading axis that 2 divides"):
        place(step, arguments, {}, mesh, ("batch",))
    arguments[1]["x"] = np.zeros((4, 4))
    (_, batch), _, _ = place(step, arguments, {}, mesh, ("batch",))
    assert (batch["x"].sharding.spec, batch["n"].sharding.spec) == (SPLIT, WHOLE)


def test_shardings_the_arguments_carry_win_over_the_rule(mesh: jax.sharding.Mesh) -> None:
    own = NamedSharding(mesh, PartitionSpec(None, "data"))
    arguments = (jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=own), np.zeros((4, 4)))
    (params, batch), _, _ = place(step, arguments, {}, mesh, None)
    assert params.sharding == own
    assert batch.sharding == replicated(mesh)
