"""How calls pass their arguments, noted without keeping anything alive."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_cmdbuf.api.call_notes import CallNotes, Producers


def noted(*calls: tuple[dict[str, Any], list[Any]], producers: Producers | None = None) -> CallNotes:
    notes = CallNotes(producers or Producers())
    for number, (arguments, results) in enumerate(calls):
        given = [(path, value, path == "donated") for path, value in arguments.items()]
        notes.add(given, [(f"result[{n}]", each) for n, each in enumerate(results)], 10 * number, 3)
    return notes


def test_calls_are_counted_and_timed() -> None:
    notes = noted(({}, []), ({}, []))
    assert notes.count == 2
    assert list(notes.times) == [(0, 3), (10, 3)]


def test_arrays_that_stay_and_results_that_come_back() -> None:
    weight, states = jnp.ones(3), [jnp.ones(3) * n for n in range(4)]
    calls = [({"w": weight, "donated": a}, [jnp.zeros(()), b]) for a, b in itertools.pairwise(states)]
    uses = noted(*calls).uses()
    assert (uses["w"].calls, uses["w"].kept, uses["w"].fed_back, uses["w"].donated) == (3, 2, 0, False)
    state = uses["donated"]
    assert (state.kept, state.fed_back, state.result, state.donated) == (0, 2, "result[1]", True)


def test_host_values_have_a_kind_and_may_be_the_same_object() -> None:
    array = np.ones(3)
    uses = noted(*[({"same": array, "new": np.ones(3), "number": 0.5}, [])] * 2).uses()
    assert (uses["same"].host, uses["same"].host_kept, uses["same"].kind) == (2, 1, "numpy.ndarray")
    assert (uses["number"].kind, uses["number"].host_kept) == ("float", 1)
    uses = noted(*[({"new": np.ones(3)}, []) for _ in range(2)]).uses()
    assert (uses["new"].host, uses["new"].host_kept) == (2, 0)


def test_one_array_for_two_arguments() -> None:
    array = jnp.ones(3)
    uses = noted(({"a": array, "b": jnp.ones(3), "c": array}, [])).uses()
    assert (uses["a"].same_as, uses["b"].same_as, uses["c"].same_as) == ("c", "", "a")


def test_arrays_of_other_functions_have_a_source() -> None:
    producers, batch = Producers(), jnp.ones(3)
    producers.add(batch, "make_batch")
    uses = noted(({"x": batch, "y": jnp.ones(3)}, []), producers=producers).uses()
    assert (uses["x"].source, uses["y"].source) == ("make_batch", "")


def test_nothing_is_kept_alive() -> None:
    producers = Producers()
    values: list[Any] = [jnp.ones(3), np.ones(3), jnp.zeros(3)]
    producers.add(values[2], "f")
    notes = noted(({"a": values[0], "b": values[1]}, [values[2]]), producers=producers)
    dead = [weakref.ref(each) for each in values]
    values.clear()
    gc.collect()
    assert [each() for each in dead] == [None] * 3
    assert notes.uses()["a"].calls == 1
    assert producers._names == {}


def test_what_took_a_dead_array_s_place_is_not_taken_for_it() -> None:
    producers = Producers()
    notes = CallNotes(producers)
    for _ in range(50):
        result = jnp.ones(3)
        producers.add(result, "f")
        notes.add([("x", jnp.ones(3), False)], [("result[]", result)], 0, 1)
        del result
    use = notes.uses()["x"]
    assert (use.calls, use.kept, use.fed_back, use.source) == (50, 0, 0, "")


def test_deleted_arrays_are_no_trouble() -> None:
    array = jax.device_put(1.0)
    array.delete()
    assert noted(({"x": array}, [])).uses()["x"].calls == 1
