from __future__ import annotations

import json

import pytest

from xla_flags import Catalog, shipped_versions
from xla_flags.generate import FieldFact, FlagFact, OptionFacts, catalog_json, catalog_text
from xla_flags.schema import DATA


@pytest.mark.parametrize("version", shipped_versions())
def test_shipped_files_are_in_the_written_form(version: str) -> None:
    text = (DATA / f"catalog-{version}.json").read_text()
    assert catalog_text(json.loads(text)) == text


def test_a_catalog_of_facts() -> None:
    enums = {"xla.PrimitiveType": {"F32": 11}, "xla.Unused": {"A": 0}, "xla.E": {"A": 0, "B": 1}}
    fields = [
        FieldFact("xla_b", 2, "enum", True, False, "xla.E", ["A"], ["A"]),
        FieldFact("xla_a", 1, "bool", False, False, "", False, True),
        FieldFact("xla_gpu_enable_nccl_clique_optimization", 3, "bool", False, False, "", False, False),
    ]
    flags = [
        FlagFact("xla_b", "string", "A", "xla_b"),
        FlagFact("xla_a", "bool", "true", "xla_a"),
        FlagFact(
            "xla_gpu_enable_nccl_clique_optimization",
            "bool",
            "false",
            "xla_gpu_enable_nccl_clique_optimization",
        ),
    ]
    data = catalog_json("9", flags, fields, enums, OptionFacts({"fdo_profile": "bytes"}, ["numbers_as_int"]))
    assert "xla.Unused" not in data["enums"]
    assert json.loads(catalog_text(data)) == data
    catalog = Catalog.from_json(data)
    assert [*catalog.fields] == ["xla_a", "xla_b", "xla_gpu_enable_nccl_clique_optimization"]
    assert [*catalog.flags] == ["xla_b", "xla_a", "xla_gpu_enable_nccl_clique_optimization"]
    assert (catalog.fields["xla_a"].default, catalog.fields["xla_a"].xla_default) == (False, True)
    assert catalog.flags["xla_gpu_enable_nccl_clique_optimization"].field is None
    assert catalog.exact
