from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xla_flags import CatalogError
from xla_flags.descriptors import Types, decode, embedded_file, read_fields, read_file


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def field(name: str, index: int, type_: int, label: int = 1, type_name: str = "") -> bytes:
    spec = part(1, name) + number(3, index) + number(4, label) + number(5, type_)
    return part(2, spec + (part(6, type_name) if type_name else b""))


COLOR = part(1, "Color") + part(2, part(1, "RED")) + part(2, part(1, "BLUE") + number(2, -1))
ENTRY = part(1, "MapEntry") + field("key", 1, 9) + field("value", 2, 9) + part(7, number(7, 1))
MESSAGE = b"".join(
    [
        part(1, "M"),
        field("flag", 1, 8),
        field("count", 2, 3),
        field("ratio", 3, 2),
        field("name", 4, 9),
        field("color", 5, 14, 1, ".p.M.Color"),
        field("colors", 6, 14, 3, ".p.M.Color"),
        field("map", 7, 11, 3, ".p.M.MapEntry"),
        field("inner", 8, 11, 1, ".p.M"),
        field("ratios", 9, 2, 3),
        field("precise", 10, 1),
        field("raw", 11, 12),
        part(3, ENTRY),
        part(4, COLOR),
    ]
)
FILE = (
    part(1, "p/m.proto") + part(2, "p") + part(4, MESSAGE) + part(5, part(1, "Top") + part(2, part(1, "A")))
)


@pytest.fixture(scope="module")
def types() -> Types:
    types = Types()
    read_file(FILE, types)
    return types


def test_messages_and_enums_have_full_names(types: Types) -> None:
    assert {*types.messages} == {"p.M", "p.M.MapEntry"}
    assert types.enums == {"p.M.Color": {"RED": 0, "BLUE": -1}, "p.Top": {"A": 0}}
    assert types.messages["p.M.MapEntry"].map_entry
    assert types.messages["p.M"].fields[6].repeated


def test_messages_are_decoded(types: Types) -> None:
    data = b"".join(
        [
            number(1, 1),
            number(2, -5),
            varint(3 << 3 | 5) + b"\0\0\0\x3f",
            part(4, "é"),
            number(5, -1),
            part(6, varint(0) + varint(-1) + varint(7)),
            number(6, 0),
            part(7, part(1, "k") + part(2, "v")),
            part(7, b""),
            part(8, number(2, 3)),
            part(9, b"\0\0\0\x3f\0\0\x80\x3f"),
            varint(10 << 3 | 1) + b"\0\0\0\0\0\0\xe0\x3f",
            part(11, b"\xff"),
            number(99, 1),
        ]
    )
    assert decode(data, types.messages["p.M"], types) == {
        "flag": True,
        "count": -5,
        "ratio": 0.5,
        "name": "é",
        "color": "BLUE",
        "colors": ["RED", "BLUE", 7, "RED"],
        "map": {"k": "v", "": ""},
        "inner": {"count": 3},
        "ratios": [0.5, 1.0],
        "precise": 0.5,
        "raw": b"\xff",
    }


def test_a_file_is_found_in_the_middle_of_a_library() -> None:
    library = b"junk p/m.proto \x0a\x09p/m.protX" + FILE + b"\0\0\xffother data"
    assert embedded_file(library, "p/m.proto") == FILE
    assert embedded_file(FILE, "p/m.proto") == FILE
    with pytest.raises(CatalogError, match=r"no descriptor of p/n\.proto"):
        embedded_file(library, "p/n.proto")


def test_strings_that_are_not_text(types: Types) -> None:
    with pytest.raises(CatalogError, match="name is not UTF-8"):
        decode(part(4, b"\xff"), types.messages["p.M"], types)


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0b", b"\x08", b"\xff" * 20, b"\x0d\0", b"\0\0"])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(CatalogError):
        list(read_fields(data))


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parts = list(read_fields(data))
    except CatalogError:
        return
    assert all(each > 0 for each, _, _ in parts)
