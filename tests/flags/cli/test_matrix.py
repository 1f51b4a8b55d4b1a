from __future__ import annotations

import pytest

from xla_flags import Catalog, parse
from xla_flags.cli.matrix import print_matrix


def test_one_column_for_each_release(capsys: pytest.CaptureFixture[str]) -> None:  # B06
    text = "--xla_gpu_graph_level=0 --xla_gpu_enable_pdl_launch=true --xla_dump_to=/d stray"
    print_matrix([parse(text, Catalog.for_jaxlib(version)) for version in ("0.10.2", "0.12.0.1")])
    assert [line.split("  ") for line in _lines(capsys.readouterr().out)] == [
        ["flag", "0.10.2", "0.12.0.1"],
        ["--xla_gpu_graph_level=0", "unknown", "unknown"],
        ["--xla_gpu_enable_pdl_launch=true", "unknown", "ok"],
        ["--xla_dump_to=/d", "ok", "ok"],
        ["(and a rest)", "never read", "never read"],
        ["ends", "ends"],
    ]


def _lines(text: str) -> list[str]:
    """Lines with columns two blanks apart."""
    lines = (line.strip() for line in text.splitlines() if line.strip())
    return ["  ".join(filter(None, map(str.strip, line.split("  ")))) for line in lines]
