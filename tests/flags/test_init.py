from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import xla_flags

HEAVY = (
    "absl",
    "argparse",
    "asyncio",
    "google",
    "jax",
    "jaxlib",
    "numpy",
    "rich",
    "subprocess",
    "typing",
    "json",
)


def modules_after(statement: str) -> set[str]:
    """Modules that a statement imports in a new process, beyond what starting Python does."""
    root = Path(xla_flags.__file__ or "").parents[1]
    code = f"""
import sys
sys.path.insert(0, {str(root)!r})
before = set(sys.modules)
{statement}
print(*(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    imported = modules_after("import xla_flags")
    assert not {name.partition(".")[0] for name in imported} & {*HEAVY}
    assert {name for name in imported if name.startswith("xla_flags")} == {"xla_flags"}


def test_parsing_imports_neither_jax_nor_protobuf() -> None:
    imported = modules_after(
        "import xla_flags; xla_flags.parse('--xla_x', xla_flags.Catalog.for_jaxlib('0.12.0.1')).message"
    )
    allowed = {"typing", "json"}
    assert not {name.partition(".")[0] for name in imported} & ({*HEAVY} - allowed)


def test_public_names() -> None:
    assert len({*xla_flags.__all__}) == len(xla_flags.__all__)
    for name in xla_flags.__all__:
        assert getattr(xla_flags, name) is not None
    assert {*xla_flags.__all__} <= {*dir(xla_flags)}
    assert callable(xla_flags.parse)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = xla_flags.nothing  # type: ignore[attr-defined]
    json.dumps(xla_flags.__all__)
