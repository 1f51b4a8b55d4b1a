from __future__ import annotations

import pytest

from xla_flags import Catalog, FlagKind, shipped_versions
from xla_flags.kinds import FieldShape, foreign_flags, kind_of


@pytest.mark.parametrize("version", shipped_versions())
def test_kinds_follow_from_name_and_field(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    shapes = {
        field.name: FieldShape(
            field.type,
            field.repeated,
            field.is_map,
            field.enum.name if field.enum else "",
            tuple(field.enum.numbers) if field.enum else (),
        )
        for field in catalog.fields.values()
    }
    for flag in catalog.flags.values():
        target = flag.field.name if flag.field else ""
        kind, extra = kind_of(flag.name, target, shapes.get(target))
        if flag.kind is FlagKind.COMMA_LIST:
            # A difference between jaxlibs that neither name nor field shows.
            assert kind is FlagKind.PASS_LIST
            continue
        assert kind is flag.kind
        assert extra.get("words", {}) == flag.words
        assert extra.get("prefix", "") == flag.prefix
        assert extra.get("minimum") == flag.minimum


def test_unknown_flags_are_read_by_the_type_of_their_field() -> None:
    assert kind_of("new", "new", FieldShape("int64", False, False)) == (FlagKind.INT64, {})
    assert kind_of("new", "new", FieldShape("enum", False, False, "xla.New", ("A",))) == (FlagKind.ENUM, {})
    assert kind_of("new", "new", FieldShape("enum", True, False, "xla.New", ("A",))) == (
        FlagKind.ENUM_LIST,
        {},
    )
    assert kind_of("new", "new", FieldShape("string", True, False)) == (FlagKind.COMMA_LIST, {})
    assert kind_of("new", "new", FieldShape("message", True, True)) == (FlagKind.MAP, {})
    assert kind_of("new", "", None) == (FlagKind.NO_EFFECT, {})
    mode = FieldShape("enum", False, False, "xla.DebugOptions.DetectionMode", ("DETECTION_MODE_NONE",))
    assert kind_of("new", "new", mode) == (FlagKind.WORD, {"words": {"none": "DETECTION_MODE_NONE"}})


def test_foreign_flags_need_their_field() -> None:
    shape = FieldShape("enum", False, False)
    assert foreign_flags({"xla_cpu_scheduler_type": shape})["xla_cpu_enable_concurrency_optimized_scheduler"]
    assert "xla_cpu_enable_concurrency_optimized_scheduler" not in foreign_flags({})
    assert foreign_flags({})["xla_fuel"] == ""
