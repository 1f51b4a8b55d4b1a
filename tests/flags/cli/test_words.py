from __future__ import annotations

import pytest

from xla_flags.cli.words import Misuse, flag_text, protect, value_of, where_from


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["check", "--xla_a=1"], ["check", "\0--xla_a=1"]),
        (["check", "--xla_a=1 --xla_b", "--jaxlib=0.12"], ["check", "\0--xla_a=1 --xla_b", "--jaxlib=0.12"]),
        (["parse", "--format=json", "--", "--help", "-h"], ["parse", "--format=json", "\0--help", "\0-h"]),
        (["check", "-h"], ["check", "-h"]),
        (["check", "-xla_a"], ["check", "\0-xla_a"]),
        (["check", "--bogus"], ["check", "\0--bogus"]),
        (["check", "--jaxlib", "0.12", "file"], ["check", "--jaxlib", "0.12", "file"]),
    ],
)
def test_flags_are_kept_from_argparse(words: list[str], expected: list[str]) -> None:
    assert protect(words) == expected
    assert [flag_text(word) for word in expected] == [word for word in words if word != "--"]


@pytest.mark.parametrize("word", ["--jaxlibs=1", "--formt=json", "--compiler-option={}"])
def test_misspelt_options_are_misuse(word: str) -> None:
    with pytest.raises(Misuse, match="did you mean"):
        protect(["check", word])


def test_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert value_of([]) is None
    assert where_from([]) == "XLA_FLAGS, which is not set"
    monkeypatch.setenv("XLA_FLAGS", "")
    assert where_from([]) == "XLA_FLAGS, which is empty"
    monkeypatch.setenv("XLA_FLAGS", "--a")
    assert (value_of([]), where_from([])) == ("--a", "XLA_FLAGS")
    assert value_of(["--b", "--c"]) == "--b --c"
    assert value_of([""]) == ""
