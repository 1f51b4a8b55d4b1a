"""A message too big for one record: XLA's split proto in a Riegeli file.

Mirrors ``xla/util/split_proto``. The first record is a ``SplitProtoManifest``: the message's type and, for
each further record, whether it is merged into the message or replaces the content of one field. Invariant:
records are used in order, each exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.descriptors import Schema
from jax_cmdbuf.executable.riegeli import HashCheck, read_records

__all__ = ["read_split_proto"]

_MANIFEST = "xla.SplitProtoManifest"


def read_split_proto(data: bytes, expected: str, schema: Schema, check: HashCheck) -> Message:
    """Reads one split message.

    Args:
      data: a Riegeli file.
      expected: full name of the message that it must hold.
      schema: where the message classes come from.
      check: see :func:`read_records`.

    Raises:
      ContainerError: damaged, or another message than expected.
      MissingDependencyError: the schema does not define the message.
    """
    records = read_records(data, check)
    if not records:
        raise ContainerError("it has no records")
    manifest = schema.message(_MANIFEST)()
    _merge(manifest, records[0])
    found: str = manifest.result_proto_type  # type: ignore[attr-defined]
    if found != expected:
        raise ContainerError(f"it holds a {found or 'message without a name'}, not a {expected}")
    rules = manifest.records  # type: ignore[attr-defined]
    if len(rules) != len(records) - 1:
        raise ContainerError(f"it announces {len(rules)} parts and has {len(records) - 1}")
    message = schema.message(expected)()
    for rule, record in zip(rules, records[1:], strict=True):
        kind = rule.WhichOneof("record_type")
        if kind == "proto_merge_record":
            _merge(message, record)
        elif kind == "field_override_record":
            _override(message, rule.field_override_record.field_path, record)
        else:
            raise ContainerError("a part of it has no known way to be put in place")
    return message


def _merge(message: Message, record: bytes) -> None:
    try:
        message.MergeFromString(record)
    except DecodeError as error:
        raise ContainerError(f"its {message.DESCRIPTOR.name} does not parse") from error


def _override(message: Message, path: Sequence[Any], record: bytes) -> None:
    """Puts a record's bytes into the field that the path names."""
    if not path:
        raise ContainerError("a part of it names no field")
    try:
        holder = message
        for part in path[:-1]:
            place, key, field = _place(holder, part)
            if field.message_type is None:
                raise ContainerError(f"a part of it belongs inside {field.name}, which is no message")
            holder = place[key] if key is not None else place
        place, key, field = _place(holder, path[-1])
        if field.message_type is not None:
            target = place[key] if key is not None else place
            target.Clear()
            _merge(target, record)
        elif key is not None:
            place[key] = _scalar(field, record)
        else:
            setattr(holder, field.name, _scalar(field, record))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ContainerError("a part of it belongs to a place that is not there") from error


def _place(holder: Any, part: Any) -> tuple[Any, int | str | None, FieldDescriptor]:
    """(the field's value, the key inside it or None, the descriptor of what is there)."""
    number = part.field_number
    field = holder.DESCRIPTOR.fields_by_number.get(number)
    if field is None:
        raise ContainerError(
            f"a part of it belongs to the unknown field {number} of {holder.DESCRIPTOR.name}"
        )
    value = getattr(holder, field.name)
    kind = part.WhichOneof("index")
    key = getattr(part, kind) if kind is not None else None
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return value, key, field.message_type.fields_by_name["value"]
    return value, key, field


def _scalar(field: FieldDescriptor, record: bytes) -> str | bytes:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return record
    if field.type == FieldDescriptor.TYPE_STRING:
        return record.decode()
    raise ContainerError(f"a part of it belongs to {field.name}, which is neither text nor bytes")
