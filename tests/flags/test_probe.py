from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.flags.jaxlibs import needs_jaxlib
from xla_flags import UnknownJaxlibError
from xla_flags.probe import probe


@needs_jaxlib
def test_one_process_answers_many_questions(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("--xla_bogus\n")
    with probe() as ask:
        good = ask.ask(b"--xla_dump_to=x")
        assert (good.status, good.fatal, good.log) == (0, None, ())
        assert good.options is not None
        assert b"x" in good.options
        bad = ask.ask(b"f", tmp_path)
        assert (bad.status, bad.options) == (1, None)
        assert bad.fatal == "Unknown flag in XLA_FLAGS: --xla_bogus"
        logged = ask.ask(b"--xla_cpu_use_thunk_runtime --xla_dump_to=\xff --xla_cpu_enable_fast_math=\n")
        assert [severity for severity, _ in logged.log] == ["W", "E", "F"]
        assert logged.fatal is not None
        assert "Flag parsing failed." in logged.fatal
        assert ask.ask(None).options == ask.ask(b"").options
    assert "jaxlib._jax" not in sys.modules or "jax" in sys.modules


def test_an_interpreter_without_jaxlib() -> None:
    with probe("/bin/true") as ask, pytest.raises(UnknownJaxlibError):
        ask.ask(None)
