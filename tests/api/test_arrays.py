"""Buffers follow arrays: collected, deleted, disowned; from any thread."""

from __future__ import annotations

import gc
import threading

import jax.numpy as jnp

from jax_cmdbuf.api.arrays import ArrayBuffers
from jax_cmdbuf.stream_executor.device_address import DeviceAddress


def buffers(number):
    return {0: DeviceAddress(number << 21, 4)}


def test_a_buffer_comes_back_once_when_its_array_dies():
    arrays, array = ArrayBuffers(), jnp.ones(3)
    assert arrays.of(array) is None
    arrays.own(array, buffers(1))
    assert arrays.of(array) == buffers(1)
    assert arrays.collect() == []
    del array
    gc.collect()
    assert arrays.collect() == [buffers(1)]
    assert arrays.collect() == []
    assert len(arrays) == 0


def test_deleted_arrays_give_theirs_back_though_they_live():
    arrays, one, other = ArrayBuffers(), jnp.ones(3), jnp.ones(3)
    arrays.own(one, buffers(1))
    arrays.own(other, buffers(2))
    one.delete()
    other.delete()
    assert arrays.collect(keep=frozenset({id(other)})) == [buffers(1)]
    assert arrays.collect() == [buffers(2)]


def test_a_disowned_array_dies_without_a_trace():
    arrays, array = ArrayBuffers(), jnp.ones(3)
    arrays.own(array, buffers(1))
    assert arrays.disown(array) == buffers(1)
    assert arrays.disown(array) is None
    del array
    gc.collect()
    assert arrays.collect() == []


def test_arrays_that_die_in_other_threads_are_all_counted():
    arrays = ArrayBuffers()
    made = [[jnp.ones(1) for _ in range(50)] for _ in range(8)]
    for number, batch in enumerate(made):
        for array in batch:
            arrays.own(array, buffers(number))
    del array, batch
    threads = [threading.Thread(target=batch.clear) for batch in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert len(arrays.collect()) == 400
