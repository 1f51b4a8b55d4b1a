from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from jax_cmdbuf.executable.descriptors import installed_schema
from jax_cmdbuf.executable.schema_union import add_missing, additions

File = descriptor_pb2.FileDescriptorProto
INT32, STRING, MESSAGE, ENUM = 5, 9, 11, 14


def test_the_union_knows_what_any_release_wrote() -> None:
    schema = installed_schema()
    thunk = schema.message("xla.gpu.ThunkProto").DESCRIPTOR
    assert {"dynamic_slice_thunk", "collective_reduce_thunk", "collective_kernel_thunk"} <= set(
        thunk.fields_by_name
    )
    assert thunk.fields_by_name["dynamic_slice_thunk"].containing_oneof.name == "impl"
    assert "gpu_topology" in schema.message("xla.gpu.GpuExecutableProto").DESCRIPTOR.fields_by_name
    types = schema.pool.FindEnumTypeByName("xla.DebugOptions.CommandBufferCmdType").values_by_name
    assert {"HOST_EXECUTE", "COLLECTIVES_KERNEL"} <= set(types)


def test_additions_are_fragments_with_packages() -> None:
    assert len(additions()) > 5
    assert all(fragment.name.endswith(".proto") and fragment.package for fragment in additions())


def installed() -> dict[str, File]:
    file = File(name="a.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="impl")
    message.oneof_decl.add(name="_hint")
    message.field.add(name="one", number=1, type=INT32, label=1, oneof_index=0)
    message.field.add(name="hint", number=2, type=INT32, label=1, oneof_index=1, proto3_optional=True)
    message.reserved_range.add(start=3, end=4)
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    return {"a.proto": file}


def fragment() -> File:
    file = File(name="moved.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    for name in ("other", "impl"):
        message.oneof_decl.add(name=name)
    message.field.add(name="two", number=3, type=MESSAGE, label=1, type_name=".p.New", oneof_index=1)
    message.field.add(name="three", number=4, type=ENUM, label=1, type_name=".p.E", oneof_index=0)
    message.field.add(name="one", number=9, type=STRING, label=1)  # the name is taken
    message.field.add(name="taken", number=2, type=STRING, label=1)  # the number is taken
    file.message_type.add(name="New").field.add(name="deep", number=1, type=STRING, label=1)
    file.enum_type.add(name="E").value.add(name="SEVEN", number=7)
    file.enum_type[0].value.add(name="AGAIN", number=0)
    return file


def test_what_is_installed_wins_and_the_rest_is_added() -> None:
    before = installed()
    merged = add_missing(before, [fragment()])
    assert before == installed(), "the argument stays as it was"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(
        File(
            name="moved.proto", package="p", syntax="proto3", message_type=merged["moved.proto"].message_type
        )
    )
    assert list(merged["a.proto"].dependency) == ["moved.proto"]
    pool.Add(merged["a.proto"])
    descriptor = pool.FindMessageTypeByName("p.M")
    numbers = {field.name: field.number for field in descriptor.fields}
    assert numbers == {"one": 1, "hint": 2, "two": 3, "three": 4}
    assert [field.name for field in descriptor.oneofs_by_name["impl"].fields] == ["one", "two"]
    assert [value.name for value in pool.FindEnumTypeByName("p.E").values] == ["ZERO", "SEVEN"]
    message = message_factory.GetMessageClass(descriptor)
    assert message.FromString(b"\x1a\x03\x0a\x01x").two.deep == "x"  # type: ignore[attr-defined]
