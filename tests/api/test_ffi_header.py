from __future__ import annotations

import ctypes
from pathlib import Path

import jax
import pytest

from jax_cmdbuf.api.ffi_header import HEADER, installed_header, parse_header
from jax_cmdbuf.errors import MissingDependencyError

SMALL = """
/* a comment; struct XLA_FFI_No { int a; }; */
#define XLA_FFI_API_MAJOR 0
#define XLA_FFI_API_MINOR 7
typedef enum {
  XLA_FFI_Kind_A = 3,  // the first
  XLA_FFI_Kind_B = 5
} XLA_FFI_Kind;
typedef uint32_t XLA_FFI_Traits;
struct XLA_FFI_Inner {
  size_t struct_size;
  int32_t number;
};
struct XLA_FFI_Outer {
  size_t struct_size;
  struct XLA_FFI_Inner* next;
  XLA_FFI_Kind kind;  // an enum; as an int
  const void* data;
  XLA_FFI_Inner inner;
  XLA_FFI_Traits traits;
  void (*deleter)(void* object);
};
struct XLA_FFI_Strange { long double wide; };
"""


def test_layouts_follow_c() -> None:
    header = parse_header(SMALL)
    assert (header.major, header.minor) == (0, 7)
    assert header.enum("Kind") == {"A": 3, "B": 5}
    offsets = [
        header.offset("Outer", name) for name in ("next", "kind", "data", "inner", "traits", "deleter")
    ]
    assert offsets == [8, 16, 24, 32, 48, 56]
    assert ctypes.sizeof(header.struct("Outer")) == 64


def test_a_renamed_field_is_found_by_either_name() -> None:
    assert parse_header(SMALL).offset("Outer", "new_name", "data") == 24


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda header: header.struct("Missing"), "struct XLA_FFI_Missing"),
        (lambda header: header.enum("Missing"), "enum XLA_FFI_Missing"),
        (lambda header: header.offset("Inner", "gone"), "gone in XLA_FFI_Inner"),
        (lambda header: header.struct("Strange"), "struct XLA_FFI_Strange"),
    ],
)
def test_what_a_header_lacks_is_named(ask, named) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MissingDependencyError, match=named):
        ask(parse_header(SMALL))


def test_another_file_is_refused() -> None:
    with pytest.raises(MissingDependencyError, match="not XLA's FFI header"):
        parse_header("struct XLA_FFI_Api { int a; };")


def test_the_installed_header_declares_every_structure_it_names() -> None:
    header = installed_header()
    text = (Path(jax.ffi.include_dir()) / HEADER).read_text()
    assert header.major == 0
    assert header.minor >= 3
    for name in (
        "Api",
        "CallFrame",
        "Buffer",
        "Attrs",
        "Metadata",
        "Metadata_Extension",
        "Error_Create_Args",
    ):
        assert f"struct XLA_FFI_{name} " in text
        assert ctypes.sizeof(header.struct(name)) > 8
    assert header.enum("DataType")["F32"] == 11
    assert header.enum("ExecutionStage")["EXECUTE"] == 3
