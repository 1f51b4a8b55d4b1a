from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable import split_proto
from jax_cmdbuf.executable.descriptors import Schema, installed_schema
from jax_cmdbuf.executable.riegeli import HashCheck

EXECUTABLE = "xla.gpu.GpuExecutableProto"


def manifest(*rules: tuple[int | str, ...] | None, name: str = EXECUTABLE) -> bytes:
    """A rule per part: None for a merge, else the path of field numbers, indices and keys."""
    message: Any = installed_schema().message("xla.SplitProtoManifest")(result_proto_type=name)
    for rule in rules:
        record = message.records.add()
        if rule is None:
            record.proto_merge_record.SetInParent()
            continue
        record.field_override_record.SetInParent()
        for step in rule:
            path = record.field_override_record.field_path
            if isinstance(step, str):
                path[-1].string_map_key = step
            elif step < 0:
                path[-1].repeated_field_index = -step - 1
            else:
                path.add(field_number=step)
    return message.SerializeToString()  # type: ignore[no-any-return]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the Riegeli file is made to hold."""
    held: list[bytes] = []
    monkeypatch.setattr(split_proto, "read_records", lambda data, check: list(held))
    return held


def read() -> Any:
    return split_proto.read_split_proto(b"", EXECUTABLE, installed_schema(), HashCheck())


def executable(**fields: object) -> bytes:
    message: Any = installed_schema().message(EXECUTABLE)(**fields)
    return message.SerializeToString()  # type: ignore[no-any-return]


def test_parts_are_merged_and_put_into_fields(parts: list[bytes]) -> None:
    parts += [
        manifest(None, None, (4,), (3,)),
        executable(module_name="m"),
        executable(asm_text="x"),
        b"\1",
        b"asm",
    ]
    found = read()
    assert (found.module_name, found.binary, found.asm_text) == ("m", b"\1", "asm")


def test_paths_go_through_messages_lists_and_maps(parts: list[bytes]) -> None:
    base: Any = installed_schema().message(EXECUTABLE)()
    base.thunks.add()
    base.dnn_compiled_graphs["key"] = b""
    parts += [
        manifest(None, (13, -1, 1, 1), (5, "key"), (1, 1, 1), (13, -1, 1)),
        base.SerializeToString(),
        b"name",
        b"graph",
        b"module",
        base.thunks[0].thunk_info.__class__(thunk_id=7).SerializeToString(),
    ]
    found = read()
    assert found.dnn_compiled_graphs["key"] == b"graph"
    assert found.hlo_module_with_config.hlo_module.name == "module"
    assert (found.thunks[0].thunk_info.thunk_id, found.thunks[0].thunk_info.profile_annotation) == (7, "")


@pytest.mark.parametrize(
    ("rules", "extra", "message"),
    [
        ([()], [b""], "names no field"),
        ([(999,)], [b""], "unknown field 999"),
        ([(13, -5, 1)], [b""], "place that is not there"),
        ([(12, -1, 3)], [b""], "place that is not there"),
        ([(8, 1)], [b""], "which is no message"),
        ([(1, 2, 4)], [b""], "neither text nor bytes"),
        ([(3,)], [b"\xff"], "place that is not there"),
        ([None], [b"\xff"], "does not parse"),
        ([None], [], "announces 1 parts and has 0"),
        ([], [b"", b""], "announces 0 parts and has 2"),
    ],
)
def test_contradictions_are_named(
    parts: list[bytes], rules: list[Any], extra: list[bytes], message: str
) -> None:
    parts += [manifest(*rules), *extra]
    with pytest.raises(ContainerError, match=message):
        read()


def test_another_message_or_none_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(ContainerError, match="no records"):
        read()
    parts.append(manifest(name="xla.cpu.CompilationResultProto"))
    with pytest.raises(ContainerError, match=r"holds a xla\.cpu\.CompilationResultProto"):
        read()
    parts[0] = manifest(name="")
    with pytest.raises(ContainerError, match="without a name"):
        read()


def test_a_part_of_unknown_kind_is_refused(parts: list[bytes]) -> None:
    message: Any = installed_schema().message("xla.SplitProtoManifest")(result_proto_type=EXECUTABLE)
    message.records.add()
    parts += [message.SerializeToString(), b""]
    with pytest.raises(ContainerError, match="no known way"):
        read()


def test_schema_of_another_world() -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto(name="empty.proto"))
    from jax_cmdbuf.errors import MissingDependencyError

    with pytest.raises(MissingDependencyError, match="jax-cuda13-pjrt"):
        Schema(pool, ()).message(EXECUTABLE)
