from __future__ import annotations

import json
from pathlib import Path

import pytest

from xla_flags.cli import main

TEXT = (
    "--xla_gpu_triton_gemm_any --xla_gpu_autotune_level='02' --xla_gpu_autotune_level=3 --xla_dump_to='a b'"
)
TIDY = ("--xla_gpu_triton_gemm_any=true", "--xla_gpu_autotune_level=3", "--xla_dump_to='a b'")


def test_canonical_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--jaxlib=0.12", TEXT]) == 0
    assert capsys.readouterr().out == " ".join(TIDY) + "\n"
    assert main(["format", "--jaxlib=0.12", "--lines", TEXT]) == 0
    assert capsys.readouterr().out == "\n".join(TIDY) + "\n"
    assert main(["format", "--jaxlib=0.12", "--format=json", TEXT]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "jaxlib": "0.12.0.1",
        "outcome": "ok",
        "text": " ".join(TIDY),
        "replaced": ["--xla_gpu_autotune_level=02"],
    }


def test_its_output_is_a_file_of_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["format", "--jaxlib=0.12", "--lines", TEXT])
    (tmp_path / "flags.txt").write_text(capsys.readouterr().out)
    assert main(["format", "--jaxlib=0.12", "--lines", str(tmp_path / "flags.txt")]) == 0
    assert capsys.readouterr().out == "\n".join(TIDY) + "\n"


def test_flags_that_fail_are_kept_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--jaxlib=0.12", "--bogus"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "--bogus\n"
    assert "Unknown flag in XLA_FLAGS: --bogus" in printed.err
