from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags.tokens import Span, Token, decode, is_inline, read_source, tokenize


def texts(source: str) -> list[str]:
    return [token.text for token in tokenize(source).tokens]


@pytest.mark.parametrize(
    ("source", "tokens", "stopped_at"),
    [
        ("", [], None),
        (" \t\r\n", [], None),
        ("--a --b=c", ["--a", "--b=c"], None),
        ("--a\r\n--b", ["--a", "--b"], None),
        ("--a\v--b", ["--a\v--b"], None),
        ("--a b --c", ["--a"], 4),
        ("--a # --b", ["--a"], 4),
        ("--a \\\n--b", ["--a"], 4),
        ("--a='x y' --b", ["--a=x y", "--b"], None),
        ("--a='x'--b", ["--a=x", "--b"], None),
        ("--a='x'y --b", ["--a=x"], 7),
        ("--a='x''y'", ["--a=x"], 7),
        ("--a='x\\'y'", ["--a=x\\"], 8),
        ('--a="x\\"\\n\\\\"', ['--a=x"n\\'], None),
        ('--a="x\ny"', ["--a=x\ny"], None),
        ("--a='x --b", ["--a=x --b"], None),
        ('--a="x\\', ["--a=x\\"], None),
        ('--a="x\\"', ['--a=x"'], None),
        ('--a=x"y z"', ['--a=x"y'], 8),
        ("--a=k='x y'", ["--a=k='x"], 9),
        ("--a.b='x y'", ["--a.b='x"], 9),
        ("--a=", ["--a="], None),
        ("-", ["-"], None),
        ("--=", ["--="], None),
        ("--a=x\0y --b", ["--a=x", "--b"], None),
        ("--a\0b='x y'", ["--a"], None),
        ("--a=\0x y\0--b", ["--a=x y", "--b"], None),
        ("--a='x\0y' --b", ["--a=x", "--b"], None),
        ("\ufeff--a", [], 0),
        ("\u00a0--a", [], 0),
    ],
)
def test_where_tokens_end(source: str, tokens: list[str], stopped_at: int | None) -> None:
    cut = tokenize(source)
    assert [token.text for token in cut.tokens] == tokens
    assert cut.stopped_at == stopped_at
    assert cut.ignored == (None if stopped_at is None else Span(stopped_at, len(source)))


def test_a_token_knows_its_parts() -> None:
    source = " --name='va\\lue' --bare --x=1=2 --y=\"unclosed"
    quoted, bare, twice, unclosed = tokenize(source).tokens
    assert source[slice(*quoted.span)] == "--name='va\\lue'"
    assert (quoted.name, quoted.value, quoted.quote, quoted.closed) == ("name", "va\\lue", "'", True)
    assert source[slice(*quoted.value_span)] == "va\\lue"
    assert (bare.name, bare.value) == ("bare", None)
    assert bare.value_span == Span(bare.span.end, bare.span.end)
    assert (twice.name, twice.value) == ("x", "1=2")
    assert source[slice(*twice.value_span)] == "1=2"
    assert not unclosed.closed
    assert source[slice(*unclosed.value_span)] == "unclosed"
    assert tokenize("-a ---b").tokens[0].name == "-a"


@given(st.text("-ab='\"\\ \t\n\0é", max_size=40))
def test_every_character_is_in_one_place(source: str) -> None:
    cut = tokenize(source)
    position = 0
    for token in cut.tokens:
        assert not source[position : token.span.start].strip(" \t\r\n")
        assert token.span.start < token.span.end
        assert source[token.span.start] == "-"
        assert token.span.start < token.value_start <= token.span.end
        assert len(token.text) <= token.span.end - token.span.start
        position = token.span.end
    rest = source[position:]
    if cut.stopped_at is None:
        assert not rest.strip(" \t\r\n")
    else:
        assert source[cut.stopped_at] not in "- \t\r\n"
        assert not source[position : cut.stopped_at].strip(" \t\r\n")


@given(st.lists(st.text("ab-_", max_size=4), max_size=5))
def test_plain_flags_are_split_at_blanks(names: list[str]) -> None:
    flags = [f"--{name}" for name in names]
    assert texts(" ".join(flags)) == flags


def test_what_is_inline() -> None:
    assert is_inline(" \t--a")
    assert is_inline("-a")
    assert not is_inline("a --b")
    assert not is_inline("'--a'")
    assert not is_inline("\v--a")
    assert not is_inline(" ")


def test_decode_keeps_every_byte() -> None:
    every = bytes(range(256))
    assert decode(every).encode("utf-8", "surrogateescape") == every


def test_an_inline_value_ends_at_nul() -> None:
    assert read_source("--a\0--b").text == "--a"
    assert read_source(b"--a=\xff\0x").text == "--a=\udcff"
    assert read_source(None).value is None
    assert read_source("") == read_source("\0")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("f.txt", "--a"),
        ("./f.txt", "--a"),
        (".//f.txt", "--a"),
        ("f.txt ", None),
        (" f.txt", None),
        ("f.txt/", None),
        ("F.txt", None),
        ("d/g", "--b"),
        ("d", ""),
        ("d/", ""),
        (".", ""),
        ("..", ""),
        ("$HOME", None),
    ],
)
def test_files_given_and_files_on_disk_are_alike(tmp_path: Path, name: str, content: str | None) -> None:
    (tmp_path / "d").mkdir()
    files = {"f.txt": "--a", "d/g": "--b"}
    for each, text in files.items():
        (tmp_path / each).write_text(text)
    given_source = read_source(name, files)
    assert given_source == read_source(name, cwd=tmp_path)
    assert given_source.file == name
    assert given_source.openable == (content is not None)
    assert given_source.text == (content or "")


def test_relative_names_are_opened_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"--a=\xff\0")
    monkeypatch.chdir(tmp_path)
    assert read_source("f").text == "--a=\udcff\0"
    assert read_source(str(tmp_path / "f"), files={}).openable
    assert read_source(os.devnull).openable
    assert not read_source("\ud800").openable


def test_a_token_is_plain_data() -> None:
    token = Token("--a", Span(0, 3), 3)
    assert token == tokenize("--a").tokens[0]
