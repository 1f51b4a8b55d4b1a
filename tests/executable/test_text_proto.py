from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.text_proto import parse_text_proto, scalar


def test_values_of_every_kind() -> None:
    message = parse_text_proto(
        """
        # a comment
        count: 3  negative: -4  hex: 0x1F  real: 1.5e3; single: 2f
        text: "a" 'b\\n' , flag: true  other: false  word: ACCELERATED
        nested { inner: 1 } nested: { inner: 2 }  angled < inner: 3 >
        list: [1, 2, 3]  messages: [{ inner: 4 }, { inner: 5 }]
        """
    )
    assert message["count"] == [3]
    assert message["negative"] == [-4]
    assert message["hex"] == [31]
    assert message["real"] == [1500.0]
    assert message["single"] == [2.0]
    assert message["text"] == ["ab\n"]
    assert (message["flag"], message["other"], message["word"]) == ([True], [False], ["ACCELERATED"])
    assert message["nested"] == [{"inner": [1]}, {"inner": [2]}]
    assert message["angled"] == [{"inner": [3]}]
    assert message["list"] == [1, 2, 3]
    assert message["messages"] == [{"inner": [4]}, {"inner": [5]}]


def test_scalar_takes_the_last_value_and_none_for_what_is_not_there() -> None:
    message = parse_text_proto("a { b: 1 } a { b: 2 b: 3 } c: 4")
    assert scalar(message, "a.b") == 3
    assert scalar(message, "c") == 4
    assert scalar(message, "a") is None
    assert scalar(message, "a.missing") is None
    assert scalar(message, "missing.b") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: @", "line 2: unexpected character '@'"),
        ("a {", "line 1: expected a field name or '}', found 'end of text'"),
        ("a: }", "line 1: expected a value, found '}'"),
        ("a 1", "line 1: expected ':' or '{' after a, found '1'"),
        ("a: [1 2]", "line 1: expected ',' or ']', found '2'"),
        ('"a": 1', "line 1: expected a field name, found"),
        ("a{" * 100, "line 1: nested deeper than 64 levels"),
    ],
)
def test_a_wrong_text_gives_one_sentence_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_text_proto(text)
    assert str(caught.value).startswith(reason)


@given(st.text(alphabet="ab:{}<>[]\"'1.,;# \n-\\", max_size=60))
def test_any_text_parses_or_raises_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_text_proto(text)
