from __future__ import annotations

import enum

import pytest

from xla_flags import (
    Catalog,
    CommandBufferCmdType,
    CommandBufferUpdateMode,
    DebugOptions,
    parse,
    shipped_versions,
)
from xla_flags.options import enum_class

NEW, OLD = Catalog.for_jaxlib("0.12.0.1"), Catalog.for_jaxlib("0.10.2")


def options(text: str, catalog: Catalog = NEW) -> DebugOptions:
    return parse(text, catalog).debug_options


def test_enums_read_as_members() -> None:
    read = options("--xla_gpu_command_buffer_update_mode=SKIP_PROFILED --xla_gpu_enable_command_buffer=while")
    assert read.xla_gpu_command_buffer_update_mode is CommandBufferUpdateMode.SKIP_PROFILED
    assert read.xla_gpu_enable_command_buffer == (CommandBufferCmdType.WHILE,)
    assert read.xla_gpu_detect_nan == "DETECTION_MODE_NONE"
    assert isinstance(read.xla_gpu_detect_nan, enum.StrEnum)


def test_absent_fields_read_as_defaults() -> None:
    read = options("")
    assert read.xla_gpu_command_buffer_update_mode is CommandBufferUpdateMode.ALWAYS_UPDATE
    assert CommandBufferCmdType.COLLECTIVES_KERNEL in read.xla_gpu_enable_command_buffer
    assert read.xla_gpu_autotune_level == 4
    assert read.xla_dump_to == ""
    assert read.xla_disable_hlo_passes == ()
    assert read.xla_gpu_analytical_latency_estimator_options["rtt_us"] == "-1"
    assert read.changed() == {}


def test_old_and_new_members_are_not_mixed_up() -> None:
    read = options("--xla_gpu_command_buffer_update_mode=NEVER_UPDATE", OLD)
    assert read.xla_gpu_command_buffer_update_mode is CommandBufferUpdateMode.NEVER_UPDATE
    assert read.xla_gpu_command_buffer_update_mode is not CommandBufferUpdateMode.SKIP_TEMP
    assert NEW.fields["xla_gpu_command_buffer_update_mode"].enum is not None


def test_messages_and_maps_are_read_only() -> None:
    read = options(
        "--xla_backend_extra_options=a=b"
        " --xla_gpu_experimental_thunk_buffer_debug_filter_by_thunk_id_ranges=1:2"
        " --xla_enable_nccl_symmetric_buffers_for_collectives=all:5"
    )
    assert read.xla_backend_extra_options == {"a": "b"}
    with pytest.raises(TypeError):
        read.xla_backend_extra_options["a"] = "c"
    assert read.xla_gpu_experimental_thunk_buffer_debug_filter["thunk_id_ranges"] == (
        {"first": 1, "last": 2},
    )
    (entry,) = read.xla_enable_nccl_symmetric_buffers_for_collectives
    assert entry == {"collective": "ALLCOLLECTIVES", "max_size_bytes": 5}
    with pytest.raises(AttributeError, match="read-only"):
        read.xla_dump_to = "x"


def test_unknown_names() -> None:
    read = options("")
    with pytest.raises(AttributeError, match=r"0\.12\.0\.1 has no DebugOptions field 'xla_fuel'"):
        _ = read.xla_fuel
    with pytest.raises(KeyError):
        _ = read["xla_fuel"]
    assert "xla_fuel" not in read
    assert not hasattr(read, "__wrapped__")


def test_it_is_a_collection_of_fields() -> None:
    read = options("--xla_dump_to=x")
    assert {*read} == NEW.fields.keys()
    assert read["xla_dump_to"] == "x"
    assert "xla_dump_to" in dir(read)
    assert repr(read) == "DebugOptions(jaxlib='0.12.0.1', xla_dump_to='x')"
    assert read.catalog is NEW


def test_equality_is_of_effective_values() -> None:
    assert options("--xla_dump_to=") == options("")
    assert options("--xla_dump_to=a --xla_dump_to=b") == options("--xla_dump_to='b'")
    assert options("--xla_dump_to=a") != options("")
    assert options("") != options("", OLD)
    assert options("") != 1


def test_a_value_knows_its_token() -> None:
    text = "--xla_dump_to=a --xla_dump_to=b"
    token = options(text).token_of("xla_dump_to")
    assert token is not None
    assert text[slice(*token.span)] == "--xla_dump_to=b"
    assert options(text).token_of("xla_gpu_autotune_level") is None


@pytest.mark.parametrize("version", shipped_versions())
def test_every_enum_of_every_jaxlib_has_a_class(version: str) -> None:
    for spec in Catalog.for_jaxlib(version).enums.values():
        known = spec.python_class
        assert {*spec.numbers} <= {*known.__members__}
        assert spec.python_class is known


def test_members_a_class_lacks_give_a_class_of_their_own() -> None:
    name = "xla.DebugOptions.CommandBufferUpdateMode"
    assert enum_class(name, ("ALWAYS_UPDATE",)) is CommandBufferUpdateMode
    newer = enum_class(name, ("ALWAYS_UPDATE", "SOMETHING_NEW"))
    assert newer is not CommandBufferUpdateMode
    assert newer("SOMETHING_NEW") == "SOMETHING_NEW"
