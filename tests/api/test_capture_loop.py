"""The loop behind a session: it owns what it works on."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jax_cmdbuf.api.capture_loop import LoopEngine
from jax_cmdbuf.api.capture_step import trace_step


def test_state_is_carried_and_everything_is_copied():
    state, batch = jnp.float32(1), np.ones(2, np.float32)
    engine = LoopEngine(trace_step(lambda s, b: (s + b.sum(), b * s), state, (batch,), {}))
    batch[:] = 9
    state.delete()
    engine.run(3)
    (carried,) = engine.read_arguments(range(1))
    (out,) = engine.read_results(range(1, 2))
    assert carried == 7
    np.testing.assert_array_equal(out, [5, 5])
    carried.delete()
    out.delete()
    engine.write(1, np.zeros(2, np.float32))
    engine.run(1)
    assert engine.read_arguments(range(1)) == [7]
    np.testing.assert_array_equal(engine.read_results(range(1, 2))[0], [0, 0])
    engine.close()
    engine.close()
