from __future__ import annotations

import pytest

from xla_flags import Catalog, parse
from xla_flags.subject import (
    SHELL_VARIABLE,
    Subject,
    line_end,
    plain_characters,
    replacing_value,
    shown,
    word_at,
)

NEW = Catalog.for_jaxlib("0.12.0.1")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("–a=b", "--a=b"),
        ("—a —b", "--a --b"),
        ("-–a", "--a"),
        ("--a–b", "--a-b"),
        ("“x” ‘y’", "\"x\" 'y'"),
        ("a\u00a0b\ufeff", "a b"),
        ("--plain='x'", "--plain='x'"),
    ],
)
def test_characters_as_a_keyboard_has_them(text: str, plain: str) -> None:
    assert plain_characters(text) == plain


@pytest.mark.parametrize("text", ["$A", "${A}", "${A:-b c}", "$(cat f)", "%A%"])
def test_shell_variables(text: str) -> None:
    match = SHELL_VARIABLE.search(f"x{text}y" if text[-1] != "A" else f"x{text}")
    assert match is not None
    assert match[0] == text


@pytest.mark.parametrize("text", ["$", ".*$", "a$1", "100%", "${}", "$ A"])
def test_what_is_no_shell_variable(text: str) -> None:
    assert SHELL_VARIABLE.search(text) is None


def test_acceptance_is_of_the_whole_text() -> None:
    subject = Subject(parse(None, NEW))
    assert subject.accepts("--xla_dump_to=/x")
    assert not subject.accepts("--xla_dump_to=/x rest")
    assert not subject.accepts("file")
    assert subject.first_accepted([None, "--bogus", "--xla_dump_to="]) == "--xla_dump_to="
    assert subject.first_accepted(["--bogus"]) is None


def test_replacing_a_value() -> None:
    text = "--xla_dump_to=/x"
    (token,) = parse(text, NEW).tokens
    assert replacing_value(token, "/y") == ((14, 16), "/y")
    assert replacing_value(token, "a b") == ((0, 16), "--xla_dump_to='a b'")
    assert replacing_value(token, "") == ((0, 16), "--xla_dump_to=")


def test_pieces_of_text() -> None:
    assert word_at("ab cd", 3) == (3, 5)
    assert line_end("a\nb", 0) == 1
    assert line_end("a", 0) == 1
    assert shown("a\nb") == "a\\nb"
    assert len(shown("x" * 100)) == 60
