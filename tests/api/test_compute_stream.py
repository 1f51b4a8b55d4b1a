"""XLA's stream: learnt from a running program on a GPU, refused elsewhere."""

from __future__ import annotations

import jax
import pytest

from jax_cmdbuf.api.compute_stream import compute_stream
from jax_cmdbuf.api.probe import PROBE_LOG, probe
from jax_cmdbuf.errors import StatusError


def test_a_cpu_has_no_stream() -> None:
    with pytest.raises(StatusError, match=r"is a cpu device and has no stream"):
        compute_stream(jax.devices("cpu")[0])


@pytest.mark.gpu
def test_it_is_the_one_that_programs_run_on() -> None:
    records = []
    stream = compute_stream(jax.devices("cuda")[0])
    assert stream
    with PROBE_LOG.subscribe(records.append):
        jax.block_until_ready(jax.jit(lambda x: (probe(x), x + 1)[1])(1.0))
        jax.effects_barrier()
    assert [record.stream for record in records] == [stream]
