from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from jax_cmdbuf import plugin

MODE = "--xla_gpu_command_buffer_update_mode="
Run = Callable[..., subprocess.CompletedProcess[str]]
# In the installed jaxlib or in ours, always one of them: what this jaxlib lacks of the update modes.
LACKS_MODES = version("jaxlib").startswith("0.10.")


@pytest.fixture
def run_installed(tmp_path: Path) -> Run:
    """Runs code in a process in which JAX finds our entry point, as after an installation."""
    info = tmp_path / "jax_cmdbuf_for_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jax-cmdbuf-for-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[jax_plugins]\njax_cmdbuf = jax_cmdbuf.plugin\n")

    def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))
        }
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**inherited, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **environ},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


LOOK = "import jax, os; print(jax.device_count(), os.environ['XLA_FLAGS'], os.environ.get('JAX_CMDBUF_MODE'))"
FOUR = "--xla_force_host_platform_device_count=4"


def test_a_repair_reaches_xla(run_installed: Run) -> None:
    done = run_installed(LOOK, XLA_FLAGS=f"--xla_no_such_flag=1 {FOUR}", JAX_CMDBUF_FLAGS="repair")
    assert done.stdout == f"4 {FOUR} None\n", done.stderr
    assert "refuses --xla_no_such_flag=1; it was dropped from XLA_FLAGS" in done.stderr


def test_a_warning_comes_before_xla_ends_the_process(run_installed: Run) -> None:
    done = run_installed(LOOK, XLA_FLAGS=f"--xla_gpu_graph_level=0 {FOUR}")
    assert done.returncode == 1
    explained, refused = done.stderr.split("Unknown flag in XLA_FLAGS: --xla_gpu_graph_level=0")[:2]
    assert "would end this process" in explained
    assert "write --xla_gpu_enable_command_buffer=" in explained
    assert "JAX_CMDBUF_FLAGS=repair" in explained
    assert "would end this process" not in refused


def test_switched_off_it_says_nothing(run_installed: Run) -> None:
    done = run_installed(LOOK, XLA_FLAGS="--xla_gpu_graph_level=0", JAX_CMDBUF_FLAGS="off")
    assert done.returncode == 1
    assert "would end this process" not in done.stderr


def test_the_update_modes_reach_xla_or_become_ours(run_installed: Run) -> None:
    done = run_installed(LOOK, XLA_FLAGS=f"{FOUR} {MODE}SKIP_PROFILED")
    expected = f"4 {FOUR} SKIP_PROFILED\n" if LACKS_MODES else f"4 {FOUR} {MODE}SKIP_PROFILED None\n"
    assert done.stdout == expected, done.stderr
    assert ("was taken out of XLA_FLAGS" in done.stderr) is LACKS_MODES


def test_good_flags_cost_no_word_and_the_probe_is_registered(run_installed: Run) -> None:
    code = """
import jax, jax.numpy as jnp, sys
jax.devices()
assert "jax_cmdbuf.api.probe" in sys.modules
from jax_cmdbuf.api.probe import PROBE_LOG
# Without probe(): as a program from elsewhere would have it.
call = jax.ffi.ffi_call("jax_cmdbuf.probe", (), has_side_effect=True)
jax.jit(lambda x: call(x, label="here", names="x"))(jnp.ones(3))
jax.effects_barrier()
print([record.label for record in PROBE_LOG])
"""
    done = run_installed(code, XLA_FLAGS=FOUR)
    assert done.stdout == "['here']\n", done.stderr
    assert "jax_cmdbuf" not in done.stderr
    assert "XLA_FLAGS" not in done.stderr


def test_another_plugins_error_is_still_shown(run_installed: Run, tmp_path: Path) -> None:
    (tmp_path / "failing_plugin.py").write_text("def initialize(): raise RuntimeError('the other one')\n")
    info = tmp_path / "failing-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[jax_plugins]\nfailing = failing_plugin\n")
    done = run_installed("import jax; print(jax.device_count())")
    assert done.stdout == "1\n"
    assert "the other one" in done.stderr


def test_it_never_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a broken installation")

    monkeypatch.setattr(plugin, "guard_flags", fail)
    monkeypatch.setattr("jax_cmdbuf.api.probe.register_probe", fail)
    plugin.initialize()
    messages = [record.message for record in caplog.records]
    assert messages == [
        "jax_cmdbuf could not check XLA_FLAGS: RuntimeError: a broken installation",
        "jax_cmdbuf.probe will not work: RuntimeError: a broken installation",
    ]


def test_without_flags_the_flag_library_is_not_imported(run_installed: Run) -> None:
    code = "import jax, sys; jax.devices(); print([n for n in sys.modules if n.startswith('xla_flags')])"
    assert run_installed(code).stdout == "[]\n"


def test_an_unknown_policy_warns(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"XLA_FLAGS": FOUR, "JAX_CMDBUF_FLAGS": "fix", "JAX_PLATFORMS": "cpu"}
    with caplog.at_level(logging.WARNING):
        plugin.guard_flags(environ)
    assert [record.message for record in caplog.records] == [
        "JAX_CMDBUF_FLAGS=fix is none of warn, repair, off; taken as warn"
    ]
    assert environ["XLA_FLAGS"] == FOUR


def test_a_mode_that_the_user_chose_is_not_overwritten() -> None:
    environ = {"XLA_FLAGS": f"{MODE}SKIP_PROFILED", "JAX_CMDBUF_MODE": "SKIP_TEMP", "JAX_PLATFORMS": "cpu"}
    plugin.guard_flags(environ)
    assert environ["JAX_CMDBUF_MODE"] == "SKIP_TEMP"
