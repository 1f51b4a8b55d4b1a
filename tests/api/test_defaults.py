from __future__ import annotations

import pytest

from jax_cmdbuf.api.defaults import (
    UPDATE_MODE,
    check_target,
    default_observe,
    default_runtime,
    default_target,
    default_update_mode,
    runtime_named,
    update_mode_named,
)
from jax_cmdbuf.errors import InputError, TargetError

FLAG = "--xla_gpu_command_buffer_update_mode="


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({}, "ALWAYS_UPDATE"),
        ({"XLA_FLAGS": "--xla_gpu_autotune_level=0"}, "ALWAYS_UPDATE"),
        ({"XLA_FLAGS": f"{FLAG}SKIP_TEMP"}, "SKIP_TEMP"),
        ({"XLA_FLAGS": f"{FLAG}SKIP_TEMP {FLAG}'SKIP_PROFILED'"}, "SKIP_PROFILED"),
        ({"XLA_FLAGS": f"{FLAG}SKIP_TEMP {FLAG}ALWAYS_UPDATE"}, "ALWAYS_UPDATE"),
        ({"XLA_FLAGS": f"{FLAG}NEVER_UPDATE"}, "ALWAYS_UPDATE"),
        ({"XLA_FLAGS": f"# {FLAG}SKIP_TEMP"}, "ALWAYS_UPDATE"),
        ({"XLA_FLAGS": f"--a -- {FLAG}SKIP_TEMP"}, "ALWAYS_UPDATE"),
        ({UPDATE_MODE: "SKIP_TEMP"}, "SKIP_TEMP"),
        ({UPDATE_MODE: "SKIP_TEMP", "XLA_FLAGS": f"{FLAG}SKIP_PROFILED"}, "SKIP_TEMP"),
        ({UPDATE_MODE: "", "XLA_FLAGS": f"{FLAG}SKIP_PROFILED"}, "SKIP_PROFILED"),
    ],
)
def test_the_environment_decides(environ: dict[str, str], mode: str) -> None:
    assert default_update_mode(environ) == mode


def test_a_mode_that_is_none_is_told() -> None:
    with pytest.raises(
        InputError, match="JAX_CMDBUF_MODE is 'skip'; an update mode is one of ALWAYS_UPDATE, "
    ):
        default_update_mode({UPDATE_MODE: "skip"})
    with pytest.raises(InputError, match="update_mode is 'NEVER_UPDATE'"):
        update_mode_named("NEVER_UPDATE", "update_mode")


def test_observing_is_switched_by_a_word() -> None:
    assert default_observe({})
    assert default_observe({"JAX_CMDBUF_OBSERVE": "on"})
    assert not default_observe({"JAX_CMDBUF_OBSERVE": "off"})
    with pytest.raises(InputError, match="JAX_CMDBUF_OBSERVE is '0'; it is on or off"):
        default_observe({"JAX_CMDBUF_OBSERVE": "0"})


def test_runtime_and_target() -> None:
    assert default_runtime({}) == "auto"
    assert default_runtime({"JAX_CMDBUF_RUNTIME": "simulated"}) == "simulated"
    with pytest.raises(InputError, match="JAX_CMDBUF_RUNTIME is 'gpu'; it is one of auto, xla, simulated"):
        default_runtime({"JAX_CMDBUF_RUNTIME": "gpu"})
    assert runtime_named("xla", "runtime") == "xla"
    assert default_target({}) is None
    assert default_target({"JAX_CMDBUF_TARGET": "l4"}) == "l4"


def test_targets_are_checked_by_name() -> None:
    check_target("h100")
    with pytest.raises(TargetError, match="unknown target 'none'"):
        check_target("none")
