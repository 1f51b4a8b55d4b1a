"""Catalogs in the form of `data/`, from facts about a jaxlib: its descriptors, defaults and flags.

Invariant: a catalog holds facts only (names, numbers, types, defaults), no sentence of XLA's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from xla_flags.descriptors import Types
from xla_flags.kinds import FieldShape, kind_of

DEBUG_OPTIONS = "xla.DebugOptions"
PRIMITIVE_TYPE = "xla.PrimitiveType"
PROTO_FILES = ("xla/xla.proto", "xla/xla_data.proto", "xla/backends/autotuner/backends.proto")
"""The .proto files that DebugOptions and its types are in."""


class FlagFact(NamedTuple):
    """A row of XLA's table: the flag, its printed type and default, and the field it writes ("" for none)."""

    name: str
    type: str
    default: str
    field: str


class FieldFact(NamedTuple):
    """A field of DebugOptions; `enum` is the full name of its enum; see `schema.FieldSpec` for the rest."""

    name: str
    number: int
    type: str
    repeated: bool
    is_map: bool
    enum: str
    default: Any
    xla_default: Any


PASS_LISTS = ("xla_disable_hlo_passes", "xla_enable_hlo_passes_only")
"""The flags whose entries some jaxlibs check and others do not."""


class OptionFacts(NamedTuple):
    """What is peculiar to compiler options; see `schema.Catalog`."""

    jax_options: Mapping[str, str]
    quirks: Iterable[str]


def field_shapes(types: Types) -> dict[str, tuple[int, FieldShape]]:
    """Field -> number and shape, of DebugOptions in these descriptors, in the order of the numbers."""
    shapes = {}
    for number, spec in sorted(types.messages[DEBUG_OPTIONS].fields.items()):
        nested = types.messages.get(spec.type_name)
        enum = spec.type_name if spec.type == "enum" else ""
        members = tuple(types.enums.get(enum, ()))
        is_map = nested is not None and nested.map_entry
        shapes[spec.name] = number, FieldShape(spec.type, spec.repeated, is_map, enum, members)
    return shapes


def catalog_json(
    version: str,
    flags: Iterable[FlagFact],
    fields: Iterable[FieldFact],
    enums: Mapping[str, Mapping[str, int]],
    options: OptionFacts,
) -> dict[str, Any]:
    """A catalog in the form of `data/`.

    Args:
      version: of jaxlib.
      flags: in the order of XLA's table.
      fields: all of DebugOptions.
      enums: full name -> member -> number, of all enums that fields have, and of `xla.PrimitiveType`.
      options: what is peculiar to compiler options.
    """
    ordered = sorted(fields, key=lambda each: each.number)
    shapes = {
        each.name: FieldShape(
            each.type, each.repeated, each.is_map, each.enum, tuple(enums.get(each.enum, ()))
        )
        for each in ordered
    }
    used = {each.enum for each in ordered if each.enum} | {PRIMITIVE_TYPE}
    return {
        "jaxlib": version,
        "jax_options": dict(options.jax_options),
        "quirks": sorted(options.quirks),
        "enums": {name: dict(enums[name]) for name in sorted(used)},
        "fields": [_field_row(each) for each in ordered],
        "flags": [_flag_row(each, shapes) for each in flags],
    }


def _field_row(fact: FieldFact) -> list[Any]:
    shape = "map" if fact.is_map else "many" if fact.repeated else "one"
    row = [fact.name, fact.number, fact.enum or fact.type, shape, fact.default]
    return row if fact.xla_default == fact.default else [*row, fact.xla_default]


def _flag_row(fact: FlagFact, shapes: Mapping[str, FieldShape]) -> list[Any]:
    kind, extra = kind_of(fact.name, fact.field, shapes.get(fact.field))
    # A flag without effect may have a field of its name, which it leaves alone.
    field = fact.field if kind.writes else ""
    row = [fact.name, str(kind), fact.type, fact.default, field]
    return [*row, extra] if extra else row


def catalog_text(catalog: Mapping[str, Any]) -> str:
    """The catalog as the file's text: JSON with one flag, field or enum a line, so that diffs read well."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))

    short = ("jaxlib", "exact", "jax_options", "quirks")
    parts = [f'"{key}":{line(catalog[key])}' for key in short if key in catalog]
    enums = ",\n".join(f"{line(name)}:{line(members)}" for name, members in catalog["enums"].items())
    parts.append(f'"enums":{{\n{enums}\n}}')
    for key in ("fields", "flags"):
        parts.append(f'"{key}":[\n' + ",\n".join(map(line, catalog[key])) + "\n]")
    return "{" + ",\n".join(parts) + "}\n"
