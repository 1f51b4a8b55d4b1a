from __future__ import annotations

import ctypes
from typing import Any

import pytest

from jax_cmdbuf.api.ffi_abi import element_bits, installed_abi
from jax_cmdbuf.errors import StatusCode, StatusError

ABI = installed_abi()


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        *(("pred", 8), ("s4", 4), ("u64", 64), ("bf16", 16), ("c128", 128)),
        *(("f8e4m3b11fnuz", 8), ("f4e2m1fn", 4), ("token", 0), ("invalid", 0)),
    ],
)
def test_bits_of_element_types(dtype: str, bits: int) -> None:
    assert element_bits(dtype) == bits


def test_every_element_type_of_the_header_has_a_size() -> None:
    sizes = {name: element_bits(name) for name in ABI.dtypes.values()}
    assert {name for name, bits in sizes.items() if not bits} == {"invalid", "token"}


def metadata_frame() -> tuple[Any, Any, list[Any]]:
    """A call frame that asks for metadata, as XLA makes it."""
    header = ABI.header
    metadata: Any = header.struct("Metadata")()
    extension: Any = header.struct("Metadata_Extension")()
    extension.extension_base.type = 1
    extension.metadata = ctypes.addressof(metadata)
    frame: Any = header.struct("CallFrame")()
    frame.extension_start = ctypes.addressof(extension)
    return frame, metadata, [extension]


def test_the_metadata_question_is_answered_with_the_headers_version() -> None:
    frame, metadata, _alive = metadata_frame()
    assert ABI.answer_metadata(ctypes.addressof(frame), 1)
    version = metadata.api_version
    assert (version.major_version, version.minor_version) == (ABI.header.major, ABI.header.minor)
    assert metadata.traits == 1


def test_an_ordinary_call_is_no_question() -> None:
    frame: Any = ABI.header.struct("CallFrame")()
    assert not ABI.answer_metadata(ctypes.addressof(frame), 0)


def test_an_unknown_extension_is_passed_over() -> None:
    frame, metadata, alive = metadata_frame()
    other: Any = ABI.header.struct("Metadata_Extension")()
    other.extension_base.type = 99
    other.extension_base.next = ctypes.addressof(alive[0])
    frame.extension_start = ctypes.addressof(other)
    assert ABI.answer_metadata(ctypes.addressof(frame), 0)
    assert metadata.api_version.minor_version == ABI.header.minor


def test_a_function_beyond_the_callers_table_is_not_called() -> None:
    """An older plugin's table is shorter; reading past its end would be a wild jump."""
    table: Any = ABI.header.struct("Api")()
    table.struct_size = ABI.header.offset("Api", "RunId_Get")
    with pytest.raises(StatusError, match="older than jaxlib's header: it has no RunId_Get") as caught:
        ABI.get(ctypes.addressof(table), 0, "RunId_Get")
    assert caught.value.code is StatusCode.UNIMPLEMENTED


def test_a_getters_error_is_read_and_destroyed() -> None:
    """A table of our own: Stream_Get fails, and says why."""
    destroyed: list[int] = []
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    details = ABI.header.struct(f"{ABI._details}_Args")
    text = ctypes.create_string_buffer(b"no stream here")

    def say(address: int) -> None:
        details.from_address(address).message = ctypes.addressof(text)  # type: ignore[attr-defined]

    entries = {
        "Stream_Get": function(lambda address: 0x1234),
        ABI._details: function(say),
        "Error_Destroy": function(
            lambda address: destroyed.append(
                ABI.header.struct("Error_Destroy_Args").from_address(address).error  # type: ignore[attr-defined]
            )
        ),
    }
    table: Any = ABI.header.struct("Api")()
    table.struct_size = ctypes.sizeof(table)
    for name, entry in entries.items():
        setattr(table, name, ctypes.cast(entry, ctypes.c_void_p))
    with pytest.raises(StatusError, match="Stream_Get: no stream here"):
        ABI.get(ctypes.addressof(table), 0, "Stream_Get")
    assert destroyed == [0x1234]
