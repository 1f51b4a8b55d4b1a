from __future__ import annotations

import os

import pytest

from jax_cmdbuf.api.device_probe import Device, probe_devices

CPU = {**os.environ, "JAX_PLATFORMS": "cpu"}


def test_the_devices_of_another_process_are_listed() -> None:
    found = probe_devices({**CPU, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"})
    assert found.error == ""
    assert found.devices == (Device(0, "cpu", "cpu", "cpu"), Device(1, "cpu", "cpu", "cpu"))


def test_a_process_that_xla_ends_is_told_with_xlas_reason() -> None:
    found = probe_devices({**CPU, "XLA_FLAGS": "--xla_no_such_flag"})
    assert found.devices == ()
    assert (
        found.error == "JAX's process ended with exit status 1: Unknown flag in XLA_FLAGS: --xla_no_such_flag"
    )


def test_a_platform_that_is_not_there_is_told_with_what_jax_says() -> None:
    found = probe_devices({**CPU, "JAX_PLATFORMS": "no_such_platform"})
    assert found.devices == ()
    assert "no_such_platform" in found.error


@pytest.mark.parametrize("timeout", [0.01])
def test_a_process_that_hangs_is_ended(timeout: float) -> None:
    assert probe_devices(CPU, timeout).error == "JAX did not start within 0.01 s"
