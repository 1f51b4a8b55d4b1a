"""Who owns the buffers of a call when it has ended."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import pytest

from jax_cmdbuf.api.arrays import ArrayBuffers
from jax_cmdbuf.api.observation import reset_simulation
from jax_cmdbuf.api.signature import read_arguments
from jax_cmdbuf.api.simulated_call import SimulatedCall, ordinals
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from tests.api.simulated_programs import feedback, matrix, program_of


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    reset_simulation()
    yield
    reset_simulation()


def address(number):
    return DeviceAddress(number << 21, 4)


@pytest.fixture
def ended():
    """The program, arguments and result of a call that took its last argument."""
    step, weights, h = feedback(), [matrix(n) for n in range(8)], matrix(9)
    arguments = read_arguments(step.jitted, step.names, (weights, h), {})
    result = step(weights, h)
    return program_of(step), arguments, result


def test_a_donated_argument_is_taken_and_its_buffer_is_the_results(ended):
    program, arguments, result = ended
    call = SimulatedCall(program, arguments, [result])
    taken = [position for position, leaf in enumerate(call.kept) if leaf.is_deleted()]
    assert call.donated == frozenset(taken)
    assert len(taken) == 1
    assert (call.ordinals, call.refused) == ([0], None)
    arrays, freed = ArrayBuffers(), []
    arrays.own(call.kept[taken[0]], {0: address(1)})
    call.returned(0, (address(1),), [address(1)])
    call.unclaimed(0, freed.append)
    call.hand_out(arrays)
    assert freed == []
    assert arrays.of(result) == {0: address(1)}
    assert arrays.of(call.kept[taken[0]]) is None


def test_what_nobody_gets_is_freed_once(ended):
    program, arguments, result = ended
    for results, outputs, expected in (
        ([result], None, [address(1)]),  # it failed, and the argument is gone all the same
        ([result], (address(2),), [address(1)]),
        ([], (address(2),), [address(1), address(2)]),
    ):
        call, arrays, freed = SimulatedCall(program, arguments, results), ArrayBuffers(), []
        call.returned(0, outputs, [address(1)])
        call.unclaimed(0, freed.append)
        call.hand_out(arrays)
        assert freed == expected
        assert len(arrays) == (1 if results and outputs else 0)


def test_an_argument_that_was_not_taken_though_it_was_given_is_refused(ended):
    program, arguments, result = ended
    weights, h = [matrix(n) for n in range(8)], matrix(9)
    kept = arguments._replace(leaves=(*weights, h))
    call = SimulatedCall(program, kept, [result])
    assert call.kept[call.refused] is h
    assert call.donated == frozenset()
    assert SimulatedCall(program, kept, None).refused is None


def test_host_values_lie_on_the_first_device():
    assert ordinals(3.0) == [0]
    assert ordinals(jnp.ones(2)) == [0]
