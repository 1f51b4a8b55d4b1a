from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jax_cmdbuf

ROOT = Path(jax_cmdbuf.__file__).parents[1]


def test_every_public_name_is_there() -> None:
    for name in jax_cmdbuf.__all__:
        assert getattr(jax_cmdbuf, name) is not None
    assert set(jax_cmdbuf.__all__) <= set(dir(jax_cmdbuf))


def test_types_see_the_same_names() -> None:
    text = Path(jax_cmdbuf.__file__).read_text()
    for name, home in jax_cmdbuf._HOME.items():
        assert f"from jax_cmdbuf.{home} import {name} as {name}\n" in text


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'jax_cmdbuf' has no attribute 'no_such_name'"):
        _ = jax_cmdbuf.no_such_name


def test_reading_an_executable_needs_no_jax() -> None:
    data = ROOT / "tests/data/va_remap/mlp_same/executable.bin.gz"
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'flags')!r}]\n"
        f"import jax_cmdbuf; plan = jax_cmdbuf.plan_source({str(data)!r})\n"
        "print(plan.command_count, 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "16 False\n"
