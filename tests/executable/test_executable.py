from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.executable import Executable


def test_a_file_is_read(
    tmp_path: Path, serialized: Callable[[str], bytes], read: Callable[[str], Executable]
) -> None:
    path = tmp_path / "executable.bin"
    path.write_bytes(serialized("mlp_default"))
    expected = read("mlp_default")
    assert Executable.from_file(path) == expected
    assert Executable.from_file(str(path)).module == "jit_f"


def test_an_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match=r"cannot read .*nothing: No such file or directory$"):
        Executable.from_file(tmp_path / "nothing")
    with pytest.raises(ContainerError, match=r"cannot read .*: Is a directory$"):
        Executable.from_file(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "noise.bin"
    path.write_bytes(b"noise")
    with pytest.raises(ContainerError, match=r"noise\.bin is not a readable"):
        Executable.from_file(path)


def test_its_text_leaves_code_and_constants_out(read: Callable[[str], Executable]) -> None:
    assert len(repr(read("const_big"))) < 20_000
