"""XLA's own costs: each mode in a process of its own; without a GPU one sentence."""

from __future__ import annotations

import pytest

from jax_cmdbuf.api.measure_native import measure_native
from jax_cmdbuf.errors import MissingDependencyError


def test_without_a_gpu_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with pytest.raises(
        MissingDependencyError, match=r"^measuring XLA under ALWAYS_UPDATE failed: .*\S$"
    ) as caught:
        measure_native()
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
def test_moving_a_persistent_buffer_costs_more_than_updating_a_command() -> None:
    found = measure_native()
    assert 0 < found["native.update"] < found["native.remap"]
