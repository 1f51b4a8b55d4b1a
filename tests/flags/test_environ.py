from __future__ import annotations

import sys
import types

import pytest

from tests.flags.jaxlibs import needs_jaxlib
from tests.flags.processes import run_python
from xla_flags import AlreadyReadError, Catalog, ProcessWouldEndError, check_environ, ensure
from xla_flags.environ import already_read, apply, late_changes, unread_arguments, used_options
from xla_flags.merge import Flags

NEW = Catalog.for_jaxlib("0.12.0.1")


@pytest.fixture
def jax_with_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge._backends = {"cpu": object()}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)


@pytest.fixture
def jax_without_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge._backends = {}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)


def test_flags_that_would_end_the_process_raise_first() -> None:  # B23
    with pytest.raises(ProcessWouldEndError, match=r"write: --xla_gpu_enable_command_buffer=") as caught:
        check_environ(NEW, {"XLA_FLAGS": "--xla_gpu_graph_level=0"})
    assert "Unknown flag in XLA_FLAGS: --xla_gpu_graph_level=0" in str(caught.value)


def test_what_does_not_stop_xla_is_returned() -> None:
    (remark,) = check_environ(NEW, {"XLA_FLAGS": "--xla_dump_to=/d stray"})
    assert remark.code == "stray-text"
    assert check_environ(NEW, {}) == ()


def test_defaults_go_under_what_is_set(jax_without_a_backend: None) -> None:  # B20
    environ = {"XLA_FLAGS": "--xla_dump_to=/d"}
    flags = ensure({"xla_gpu_graph_min_graph_size": 1}, "vmex", environ=environ, catalog=NEW)
    assert environ["XLA_FLAGS"] == flags.text == "--xla_gpu_graph_min_graph_size=1 --xla_dump_to=/d"
    assert flags.origin_of("xla_gpu_graph_min_graph_size") == "vmex"
    assert already_read() is None


def test_nothing_is_rewritten_that_means_the_same() -> None:
    environ = {"XLA_FLAGS": "--xla_dump_to='/d'   --xla_gpu_triton_gemm_any"}
    before = dict(environ)
    ensure({"xla_gpu_triton_gemm_any": True}, "lib", environ=environ, catalog=NEW)
    ensure({"xla_dump_to": "/other"}, "lib", environ=environ, catalog=NEW)
    assert environ == before
    unset: dict[str, str] = {}
    ensure({}, "lib", environ=unset, catalog=NEW)
    assert unset == {}


def test_too_late_is_an_error(jax_with_a_backend: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/d")
    with pytest.raises(AlreadyReadError, match=r"JAX has created its backend \(cpu\)"):
        ensure({"xla_gpu_graph_min_graph_size": 1}, "lib", catalog=NEW)
    apply(Flags.parse("--xla_dump_to=/d", NEW))
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge")
    with pytest.raises(AlreadyReadError, match="not read XLA_FLAGS yet"):
        used_options(NEW)
    assert late_changes(NEW) == ()


def test_flags_among_arguments_are_pointed_out() -> None:  # B36
    argv = ["train", "--xla_dump_to=/d", "--steps=3", "--xla_bogus=1"]
    (remark,) = unread_arguments(argv, NEW)
    assert " ".join(argv)[slice(*(remark.span or (0, 0)))] == "--xla_dump_to=/d"
    assert "XLA_FLAGS" in remark.message
    assert unread_arguments(["--steps=3"], NEW) == ()


@needs_jaxlib
def test_what_the_process_really_has() -> None:  # B24, B27
    done = run_python(
        """
import os
import jax
from xla_flags.environ import already_read, ensure, late_changes, used_options
assert already_read() is None
ensure({"xla_gpu_graph_min_graph_size": 7}, "lib")
jax.devices()
assert "cpu" in already_read()
assert late_changes() == ()
used = used_options()
print(used.xla_gpu_graph_min_graph_size, used.xla_gpu_autotune_level)
os.environ["XLA_FLAGS"] += " --xla_gpu_autotune_level=2 --xla_gpu_graph_min_graph_size=7"
print([(each.code, each.message.split()[0]) for each in late_changes()])
""",
        XLA_FLAGS="--xla_gpu_autotune_level=3",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["7 3", "[('too-late', 'xla_gpu_autotune_level')]"]
