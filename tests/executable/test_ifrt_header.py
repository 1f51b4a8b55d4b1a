from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.container import read_container
from jax_cmdbuf.executable.ifrt_header import IfrtHeader, check_header, split_header

Serialized = Callable[[str], bytes]


@pytest.fixture
def stated(serialized: Serialized) -> tuple[IfrtHeader, Any]:
    """A header and the program that it goes with."""
    data = serialized("mlp_default")
    return split_header(data)[0], read_container(data).executable


def test_a_header_states_module_results_and_parameters(stated: tuple[IfrtHeader, Any]) -> None:
    header, _ = stated
    assert (header.version, header.module_name) == (3, b"jit_f")
    assert (len(header.outputs), len(header.parameters)) == (2, 3)


# With these words in it, chance can make a header.
@given(st.binary(max_size=60).filter(lambda data: b"pjrt_ifrt" not in data))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ContainerError):
        split_header(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"module_name": b"jit_g"}, "the module's name"),
        ({"outputs": (b"",)}, "the number of results"),
        ({"parameters": (b"",)}, "the number of parameters"),
        ({"outputs": (b"\x0a\x04\x0a\x02\x08\x40", b"")}, "the shape of a result"),
        ({"outputs": (b"\x12\x02\x08\x0b", b"\x12\x02\x08\x04")}, "the type of a result"),
        ({"outputs": (b"\x22\x06dewice", b"")}, "the memory of a result"),
        ({"parameters": (b"\x0a\x05\x0a\x03\x0a\x01x", b"", b"")}, "the kind of a layout"),
    ],
)
def test_contradictions_are_named(
    stated: tuple[IfrtHeader, Any], changes: dict[str, Any], message: str
) -> None:
    header, executable = stated
    check_header(header, executable)
    with pytest.raises(ContainerError, match=f"disagree about {message}"):
        check_header(replace(header, **changes), executable)


def test_layouts_and_versions_are_compared(stated: tuple[IfrtHeader, Any]) -> None:
    header, executable = stated
    executable.program_shape.parameters[1].layout.minor_to_major[:] = [0, 1]
    with pytest.raises(ContainerError, match="the layout of a parameter"):
        check_header(header, executable)
    executable.program_shape.parameters[1].layout.minor_to_major[:] = [1, 0]
    executable.executable_abi_version.platform_name = "ROCM"
    with pytest.raises(ContainerError, match="the versions of the CUDA libraries"):
        check_header(header, executable)
    executable.executable_abi_version.Clear()
    check_header(header, executable)
    with pytest.raises(ContainerError, match="the version of the compiler"):
        check_header(replace(header, abi=header.abi.replace(b"GpuXla", b"gpuXla")), executable)


def test_what_is_not_stated_is_not_compared(stated: tuple[IfrtHeader, Any]) -> None:
    header, executable = stated
    check_header(IfrtHeader(3, b"", (), (), b""), executable)
    check_header(replace(header, version=4, outputs=(b"\xff",), parameters=(b"\xff",)), executable)
    check_header(replace(header, outputs=(b"", b""), parameters=(b"", b"", b""), abi=b""), executable)
