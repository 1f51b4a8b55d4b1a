from __future__ import annotations

import jax
import pytest

from jax_cmdbuf.api import native_mode
from jax_cmdbuf.api.flag_guard import UPDATE_MODE_FLAG
from jax_cmdbuf.api.native_mode import NativeClient, UpdateModeStatus, native_client, update_mode_status
from xla_flags.options import CommandBufferUpdateMode

ALWAYS, TEMP, PROFILED = (
    CommandBufferUpdateMode(name) for name in ("ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED")
)
NEW = frozenset({"ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED"})
OLD = frozenset({"ALWAYS_UPDATE", "NEVER_UPDATE", "CAPTURE_CMD_NEVER_UPDATE"})


def client(
    *,
    process: CommandBufferUpdateMode = ALWAYS,
    allocator: str = "default",
    modes: frozenset[str] | None = NEW,
) -> NativeClient:
    return NativeClient("gpu", "jax-cuda13-pjrt 0.11.2", modes, process, allocator)


@pytest.fixture
def jitted() -> object:
    return jax.jit(lambda x: x + 1)


@pytest.mark.parametrize("mode", [ALWAYS, TEMP, PROFILED])
def test_the_mode_of_the_process_needs_no_option(jitted: object, mode: CommandBufferUpdateMode) -> None:
    status, options = update_mode_status(jitted, mode, client(process=mode, allocator="vmm"))
    assert (status.is_effective, status.reason, options) == (True, "", {})


@pytest.mark.parametrize("process", [ALWAYS, TEMP, PROFILED])
@pytest.mark.parametrize("mode", [ALWAYS, TEMP, PROFILED])
def test_with_the_vmm_allocator_each_function_has_its_mode(
    jitted: object, process: CommandBufferUpdateMode, mode: CommandBufferUpdateMode
) -> None:
    status, options = update_mode_status(jitted, mode, client(process=process, allocator="vmm"))
    assert status.is_effective
    assert options == ({} if mode == process else {UPDATE_MODE_FLAG: mode.value})


@pytest.mark.parametrize("allocator", ["default", "bfc", "platform", "cuda_async"])
def test_without_it_nothing_is_remapped(jitted: object, allocator: str) -> None:
    status, options = update_mode_status(jitted, PROFILED, client(allocator=allocator))
    assert options == {}
    assert (status.requested, status.effective) == ("SKIP_PROFILED", "ALWAYS_UPDATE")
    assert str(status) == (
        "update mode SKIP_PROFILED requested, ALWAYS_UPDATE effective: the client's allocator is "
        f"'{allocator}', and remapping needs the VMM allocator (before JAX starts, set "
        "XLA_FLAGS=--xla_gpu_command_buffer_update_mode=SKIP_PROFILED, or XLA_PYTHON_CLIENT_ALLOCATOR=vmm to "
        "choose the mode per function)"
    )


def test_an_older_jaxlib_lacks_the_mode(jitted: object) -> None:
    status, options = update_mode_status(jitted, PROFILED, client(allocator="vmm", modes=OLD))
    assert (status.effective, options) == ("ALWAYS_UPDATE", {})
    assert status.reason.endswith("has ALWAYS_UPDATE, CAPTURE_CMD_NEVER_UPDATE, NEVER_UPDATE")
    assert "jaxlib 0.11 and later" in status.remedy


def test_unreadable_flags_are_trusted(jitted: object) -> None:
    status, options = update_mode_status(jitted, TEMP, client(allocator="vmm", modes=None))
    assert status.is_effective
    assert options == {UPDATE_MODE_FLAG: "SKIP_TEMP"}


def test_an_option_of_the_users_stays() -> None:
    own = jax.jit(lambda x: x, compiler_options={UPDATE_MODE_FLAG: "SKIP_TEMP"})
    status, options = update_mode_status(own, PROFILED, client(allocator="vmm"))
    assert (status.effective, options) == ("SKIP_TEMP", {})
    assert "compiler option" in status.reason


def test_what_jax_jit_did_not_make_has_the_mode_of_the_process() -> None:
    status, options = update_mode_status(lambda x: x, PROFILED, client(allocator="vmm"))
    assert (status.effective, options) == ("ALWAYS_UPDATE", {})
    assert "jax.jit did not make" in status.reason
    assert update_mode_status(lambda x: x, ALWAYS, client())[0].is_effective


def test_another_platform_has_no_command_buffers(jitted: object) -> None:
    elsewhere = NativeClient("cpu", "jaxlib 0.12.0", NEW, PROFILED, "vmm")
    status, options = update_mode_status(jitted, PROFILED, elsewhere)
    assert (status.effective, options) == ("none", {})
    assert "'cpu'" in status.reason


@pytest.mark.parametrize(
    ("environ", "mode", "allocator"),
    [
        ({}, ALWAYS, "default"),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "VMM"}, ALWAYS, "vmm"),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "bfc"}, ALWAYS, "bfc"),
        ({"XLA_FLAGS": "--xla_gpu_command_buffer_update_mode=SKIP_TEMP"}, TEMP, "vmm"),
        (
            {
                "XLA_FLAGS": "--xla_gpu_command_buffer_update_mode=SKIP_PROFILED",
                "XLA_PYTHON_CLIENT_ALLOCATOR": "bfc",
            },
            PROFILED,
            "vmm",
        ),
        # A default of ours says nothing about the process.
        ({"JAX_CMDBUF_MODE": "SKIP_PROFILED"}, ALWAYS, "default"),
    ],
)
def test_the_environment_decides(
    environ: dict[str, str], mode: CommandBufferUpdateMode, allocator: str
) -> None:
    found = native_client("gpu", environ)
    assert (found.process_mode, found.allocator, found.is_vmm) == (mode, allocator, allocator == "vmm")
    assert found.modes is not None
    assert "ALWAYS_UPDATE" in found.modes


def test_the_flags_are_those_of_the_gpus_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    carriers = native_mode.installed_carriers()
    plugins = [carrier for carrier in carriers if carrier.platforms]
    native_mode._modes.cache_clear()
    assert native_client("gpu", {}).xla == (plugins or list(carriers))[0].title
    monkeypatch.setattr(native_mode, "installed_carriers", lambda: carriers[:1])
    native_mode._modes.cache_clear()
    assert native_client("gpu", {}).xla == carriers[0].title
    native_mode._modes.cache_clear()


def test_a_status_is_data() -> None:
    assert str(UpdateModeStatus("SKIP_TEMP", "SKIP_TEMP")) == (
        "update mode SKIP_TEMP requested, SKIP_TEMP effective"
    )
