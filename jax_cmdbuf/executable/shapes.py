"""Shapes in XLA's spelling: ``f32[128,256]``, ``bf16[]``, ``(f32[2], s32[])``.

Mirrors the shape grammar of ``xla/hlo/parser/hlo_lexer.cc``. Invariant: a parsed shape has dimensions of at
least 0 and an element type that NumPy or ml_dtypes knows under ``dtype``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jax_cmdbuf.errors import InputError

__all__ = ["ELEMENT_TYPES", "ArrayShape", "Shape", "parse_shape"]

# XLA's element type -> the dtype's name in NumPy or ml_dtypes
ELEMENT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "pred": "bool",
        "s2": "int2",
        "s4": "int4",
        "s8": "int8",
        "s16": "int16",
        "s32": "int32",
        "s64": "int64",
        "u2": "uint2",
        "u4": "uint4",
        "u8": "uint8",
        "u16": "uint16",
        "u32": "uint32",
        "u64": "uint64",
        "f16": "float16",
        "bf16": "bfloat16",
        "f32": "float32",
        "f64": "float64",
        "c64": "complex64",
        "c128": "complex128",
        "f4e2m1fn": "float4_e2m1fn",
        "f8e3m4": "float8_e3m4",
        "f8e4m3": "float8_e4m3",
        "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
        "f8e4m3fn": "float8_e4m3fn",
        "f8e4m3fnuz": "float8_e4m3fnuz",
        "f8e5m2": "float8_e5m2",
        "f8e5m2fnuz": "float8_e5m2fnuz",
        "f8e8m0fnu": "float8_e8m0fnu",
    }
)
_ARRAY = re.compile(r"\s*([a-z][a-z0-9]*)\[([0-9,\s]*)\](\{[^{}]*\})?\s*")
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """One array: dtype name and dimensions."""

    dtype: str
    dimensions: tuple[int, ...]


Shape = ArrayShape | tuple["Shape", ...]


def parse_shape(text: str) -> Shape:
    """Reads one XLA shape; a layout in braces is accepted and ignored, a parenthesised list is a tuple.

    Raises:
      InputError: not a shape; the sentence shows what is wrong and an example.
    """
    shape, position = _parse(text, 0, 0)
    if position != len(text):
        raise _bad(text, f"unexpected {text[position:]!r} after the shape")
    return shape


def _parse(text: str, position: int, depth: int) -> tuple[Shape, int]:
    opening = re.compile(r"\s*\(\s*").match(text, position)
    if opening:
        return _parse_tuple(text, opening.end(), depth)
    match = _ARRAY.match(text, position)
    if match is None:
        raise _bad(text, f"expected an element type and dimensions at {text[position:]!r}")
    element, dimensions, _ = match.groups()
    if element not in ELEMENT_TYPES:
        raise _bad(text, f"unknown element type {element!r} (known: {', '.join(ELEMENT_TYPES)})")
    parts = [part.strip() for part in dimensions.split(",")] if dimensions.strip() else []
    if not all(part.isdecimal() for part in parts):
        raise _bad(text, f"bad dimensions [{dimensions}]")
    return ArrayShape(ELEMENT_TYPES[element], tuple(int(part) for part in parts)), match.end()


def _parse_tuple(text: str, position: int, depth: int) -> tuple[Shape, int]:
    if depth >= _MAX_DEPTH:
        raise _bad(text, f"tuples nested deeper than {_MAX_DEPTH} levels")
    elements: list[Shape] = []
    closing = re.compile(r"\)\s*")
    while not (end := closing.match(text, position)):
        element, position = _parse(text, position, depth + 1)
        elements.append(element)
        if text.startswith(",", position):
            position += 1
        elif not text.startswith(")", position):
            raise _bad(text, "a tuple is not closed")
    return tuple(elements), end.end()


def _bad(text: str, reason: str) -> InputError:
    return InputError(f"{text!r} is not an XLA shape such as 'f32[128,256]': {reason}")
