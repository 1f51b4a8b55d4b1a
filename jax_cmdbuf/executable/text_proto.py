"""Reads a proto in text form without its schema, as far as a target description needs it.

Invariant: every field of the text appears in the result, repeated ones in order; a value is a number, a
  string, a
boolean, an enum name or a nested message. The grammar is protobuf's text format without extensions and
``Any``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from jax_cmdbuf.errors import InputError

__all__ = ["Message", "Value", "parse_text_proto", "scalar"]

Value: TypeAlias = "int | float | str | bool | Message"
Message: TypeAlias = dict[str, list[Value]]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]?)
  | (?P<name>-?[A-Za-z_][A-Za-z0-9_.]*)
  | (?P<mark>[{}<>\[\]:;,])
    """,
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InputError(f"line {line}: unexpected character {text[position]!r}")
        if match.lastgroup is not None and match.lastgroup != "space":
            yield _Token(match.lastgroup, match.group(), line)
        line += match.group().count("\n")
        position = match.end()
    yield _Token("end", "end of text", line)


class _Reader:
    def __init__(self, text: str) -> None:
        self._rest = _tokens(text)
        self.current = next(self._rest)

    def take(self) -> _Token:
        token = self.current
        if token.kind != "end":
            self.current = next(self._rest)
        return token

    def take_if(self, *marks: str) -> bool:
        if self.current.kind == "mark" and self.current.text in marks:
            self.take()
            return True
        return False

    def fail(self, expected: str) -> InputError:
        return InputError(f"line {self.current.line}: expected {expected}, found {self.current.text!r}")

    def message(self, closing: str | None, depth: int = 0) -> Message:
        if depth > _MAX_DEPTH:
            raise InputError(f"line {self.current.line}: nested deeper than {_MAX_DEPTH} levels")
        fields: Message = {}
        while True:
            if closing is None and self.current.kind == "end":
                return fields
            if closing is not None and self.take_if(closing):
                return fields
            if self.current.kind != "name":
                raise self.fail("a field name" if closing is None else f"a field name or {closing!r}")
            name = self.take().text
            colon = self.take_if(":")
            values = fields.setdefault(name, [])
            if colon and self.take_if("["):
                self.list_into(values, depth)
            elif not colon and self.current.text not in _CLOSING:
                raise self.fail(f"':' or '{{' after {name}")
            else:
                values.append(self.value(depth))
            self.take_if(",", ";")

    def list_into(self, values: list[Value], depth: int) -> None:
        while not self.take_if("]"):
            values.append(self.value(depth))
            if not self.take_if(",") and self.current.text != "]":
                raise self.fail("',' or ']'")

    def value(self, depth: int) -> Value:
        token = self.take()
        if token.kind == "mark" and token.text in _CLOSING:
            return self.message(_CLOSING[token.text], depth + 1)
        if token.kind == "string":
            parts = [_unquoted(token.text)]
            while self.current.kind == "string":
                parts.append(_unquoted(self.take().text))
            return "".join(parts)
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "name":
            return {"true": True, "false": False}.get(token.text, token.text)
        raise InputError(f"line {token.line}: expected a value, found {token.text!r}")


def _number(text: str) -> int | float:
    if text.lower().startswith(("0x", "-0x")):
        return int(text, 16)
    try:
        return int(text)
    except ValueError:
        return float(text.rstrip("fF"))


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(0)), text[1:-1])


def parse_text_proto(text: str) -> Message:
    """The fields of a text proto: name -> values in order.

    Raises:
      InputError: not in text format; the sentence has the line.
    """
    return _Reader(text).message(None)


def scalar(message: Message, path: str) -> int | float | str | bool | None:
    """The last value at a dotted path (protobuf's rule for a singular field), or None if there is none."""
    *outer, last = path.split(".")
    for name in outer:
        nested = [value for value in message.get(name, []) if isinstance(value, dict)]
        if not nested:
            return None
        message = nested[-1]
    values = message.get(last, [])
    if not values or isinstance(values[-1], dict):
        return None
    return values[-1]
