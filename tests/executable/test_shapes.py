from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.shapes import ELEMENT_TYPES, ArrayShape, parse_shape


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("f32[128,256]", ArrayShape("float32", (128, 256))),
        ("f32[]", ArrayShape("float32", ())),
        (" bf16[ 2 , 3 ] ", ArrayShape("bfloat16", (2, 3))),
        ("s32[0]", ArrayShape("int32", (0,))),
        ("pred[7]{0}", ArrayShape("bool", (7,))),
        ("f8e4m3fn[16,16]{1,0:T(8,128)}", ArrayShape("float8_e4m3fn", (16, 16))),
        ("()", ()),
        (
            "(f32[2], (u8[], s64[1]))",
            (ArrayShape("float32", (2,)), (ArrayShape("uint8", ()), ArrayShape("int64", (1,)))),
        ),
    ],
)
def test_shapes(text: str, shape: object) -> None:
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f32[2", "expected an element type and dimensions at 'f32[2'"),
        ("f33[2]", "unknown element type 'f33' (known: pred, "),
        ("f32[2,]", "bad dimensions [2,]"),
        ("f32[2] x", "unexpected 'x' after the shape"),
        ("(f32[2]", "a tuple is not closed"),
        ("128,256", "expected an element type"),
        ("", "expected an element type"),
        ("(" * 40, "tuples nested deeper than 32 levels"),
    ],
)
def test_a_wrong_shape_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_shape(text)
    assert str(caught.value).startswith(f"{text!r} is not an XLA shape such as 'f32[128,256]': {reason}")


@given(st.sampled_from(sorted(ELEMENT_TYPES)), st.lists(st.integers(0, 10**6), max_size=5))
def test_every_array_shape_round_trips(element: str, dimensions: list[int]) -> None:
    text = f"{element}[{','.join(map(str, dimensions))}]"
    assert parse_shape(text) == ArrayShape(ELEMENT_TYPES[element], tuple(dimensions))


@given(st.text(alphabet="fs32[](),{}: x", max_size=40))
def test_any_text_is_a_shape_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_shape(text)
