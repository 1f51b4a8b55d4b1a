from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.address_reader import UNREADABLE, AddressReader, CallForm


def arrays(count: int) -> list[jax.Array]:
    return [jnp.full(4, number, jnp.float32) for number in range(count)]


def addresses(*values: Any) -> list[int]:
    return [value.unsafe_buffer_pointer() for value in values]


def test_all_leaves_are_read_in_the_order_of_jax() -> None:
    a, b, c = arrays(3)
    args, kwargs, result = ({"z": a, "a": b},), {"k": c}, (c, [a])
    for reader in (AddressReader(), AddressReader(CallForm(args, kwargs, result))):
        assert reader.arguments(args, kwargs) == addresses(b, a, c)
        assert reader.results(result) == addresses(c, a)


def test_arrays_without_containers_are_read_as_they_are() -> None:
    a, b = arrays(2)
    form = CallForm((a, b), {}, b)
    assert form.are_arguments_leaves
    assert form.is_result_leaf
    reader = AddressReader(form)
    assert reader.arguments((a, b), {}) == addresses(a, b)
    assert reader.results(b) == addresses(b)


@pytest.mark.parametrize("positions", [(), (1,), (0, 2)])
def test_chosen_leaves_only(positions: tuple[int, ...]) -> None:
    given = arrays(3)
    reader = AddressReader(CallForm((given,), {}, given)).narrowed(positions, positions)
    expected = addresses(*(given[position] for position in positions))
    assert reader.arguments((given,), {}) == expected
    assert reader.results(given) == expected


def test_what_has_no_address_is_none() -> None:
    a, deleted = arrays(2)
    deleted.delete()
    args = (a, np.ones(3), 2.0, deleted)
    assert AddressReader(CallForm((a, a, a, a))).arguments(args, {}) == [*addresses(a), None, None, None]


def test_random_keys_have_the_address_of_their_bits() -> None:
    key = jax.random.key(0)
    (a,) = arrays(1)
    assert AddressReader(CallForm((a, key))).arguments((a, key), {}) == addresses(a, jax.random.key_data(key))


def test_a_call_of_another_form_is_told() -> None:
    a, b = arrays(2)
    reader = AddressReader(CallForm((a, b))).narrowed((0, 1), ())
    with pytest.raises(UNREADABLE):
        reader.arguments((a,), {})


def test_no_array_is_kept() -> None:
    (a,) = arrays(1)
    reader = AddressReader(CallForm((a,), {}, a))
    seen = reader.arguments((a,), {}), reader.results(a)
    alive = weakref.ref(a)
    del a
    gc.collect()
    assert alive() is None
    assert seen[0] == seen[1]


def test_every_shard_is_read_device_by_device(run_python: Any) -> None:
    code = """
import jax, jax.numpy as jnp
from jax_cmdbuf.api.address_reader import AddressReader, CallForm
sharding = jax.sharding.NamedSharding(jax.make_mesh((4,), ("x",)), jax.sharding.PartitionSpec("x"))
a, b = jax.device_put((jnp.zeros(8), jnp.ones(8)), sharding)
shards = [[shard.data.unsafe_buffer_pointer() for shard in each.addressable_shards] for each in (a, b)]
expected = [row[device] for device in range(4) for row in shards]
reader = AddressReader(CallForm((a, b), {}, [b]), devices=4)
assert reader.arguments((a, b), {}) == expected
same = jax.device_put(jnp.ones(3), jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec()))
copies = [shard.data.unsafe_buffer_pointer() for shard in same.addressable_shards]
assert len(set(copies)) == 4
assert reader.results([same]) == copies
alone = jnp.ones(3)
assert reader.arguments((a, alone), {})[:4:2] == [shards[0][0], shards[0][1]]
assert reader.arguments((a, alone), {})[3] is None
assert reader.narrowed((1,), (0,)).arguments((a, b), {}) == [shards[1][0]]
assert reader.results([b]) == shards[1]
"""
    done = run_python(code, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr
