from __future__ import annotations

import json

import pytest

from xla_flags import Catalog, CatalogError, FlagKind, UnknownJaxlibError, shipped_versions
from xla_flags.schema import DATA, FORCED, version_key

VERSIONS = ("0.10.2", "0.11.2", "0.12.0.1")
COUNTS = {"0.10.2": (309, 311), "0.11.2": (339, 338), "0.12.0.1": (350, 349)}


@pytest.mark.parametrize("version", VERSIONS)
def test_shipped_catalogs(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    assert catalog is Catalog.for_jaxlib(version)
    assert (len(catalog.flags), len(catalog.fields)) == COUNTS[version]
    assert catalog.exact
    assert repr(catalog) == f"Catalog('{version}', {len(catalog.flags)} flags)"
    for name, flag in catalog.flags.items():
        assert flag.name == name
        assert not flag.presumed
        assert flag.kind.writes == (flag.field is not None)
        assert flag.kind.takes_bool == (flag.type == "bool")
        if flag.kind in (FlagKind.WORD, FlagKind.WORD_ANY_CASE, FlagKind.BOOL_AS_WORD):
            assert flag.enum is not None
            assert {*flag.words.values()} <= {*flag.enum.numbers}
        if flag.prefix:
            assert flag.enum is not None
            assert all(member.startswith(flag.prefix) for member in flag.enum.numbers)


@pytest.mark.parametrize("version", VERSIONS)
def test_defaults_fit_their_fields(version: str) -> None:
    types = {"bool": bool, "int32": int, "int64": int, "float": float, "string": str}
    for field in Catalog.for_jaxlib(version).fields.values():
        if field.is_map or (field.type == "message" and not field.repeated):
            assert isinstance(field.default, dict)
            continue
        values = field.default if field.repeated else [field.default]
        for value in values:
            if field.enum is not None:
                assert value in field.enum.numbers
            else:
                assert type(value) is types[field.type]
        assert (field.default == field.xla_default) or field.name in FORCED


def test_versions_are_sorted_as_numbers() -> None:
    assert shipped_versions() == tuple(sorted(shipped_versions(), key=version_key))
    assert shipped_versions()[:3] == VERSIONS
    assert version_key("0.9") < version_key("0.10.2") < version_key("0.10.10") < version_key("0.12.0.1")
    assert version_key("0.12.0.dev1") == (0, 12, 0, 0)
    assert version_key("0.12.0rc1") == (0, 12, 0)


def test_an_unknown_version_names_the_known() -> None:
    with pytest.raises(UnknownJaxlibError, match=r"'0\.1'; there are: 0\.10\.2, 0\.11\.2, 0\.12\.0\.1"):
        Catalog.for_jaxlib("0.1")


@pytest.mark.parametrize(
    "data", [{}, {"jaxlib": "1"}, {"jaxlib": "1", "enums": [], "fields": 1, "flags": []}]
)
def test_what_is_no_catalog(data: dict[str, object]) -> None:
    with pytest.raises(CatalogError, match="not a catalog"):
        Catalog.from_json(data)


def test_an_unknown_kind_is_an_error() -> None:
    data = json.loads((DATA / "catalog-0.10.2.json").read_bytes())
    data["flags"][0][1] = "telepathy"
    with pytest.raises(CatalogError, match="telepathy"):
        Catalog.from_json(data)


def test_the_data_holds_no_sentences() -> None:
    for version in shipped_versions():
        for value in (DATA / f"catalog-{version}.json").read_text().split('"'):
            assert len(value.split()) < 4 or value.isupper() or ", " in value, value


def test_enums_know_both_ways() -> None:
    catalog = Catalog.for_jaxlib("0.12.0.1")
    enum = catalog.enums["xla.DebugOptions.StepMarkerLocation"]
    assert enum.names[enum.numbers["STEP_MARK_NONE"]] == "STEP_MARK_NONE"
    assert catalog.flags["xla_step_marker_location"].enum is enum
    assert catalog.flags["xla_dump_to"].enum is None


def test_forced_fields() -> None:
    fields = Catalog.for_jaxlib("0.12.0.1").fields
    assert fields["xla_cpu_enable_fast_min_max"].forced
    assert (
        fields["xla_cpu_enable_fast_min_max"].default,
        fields["xla_cpu_enable_fast_min_max"].xla_default,
    ) == (
        False,
        True,
    )
    assert not fields["xla_dump_to"].forced
    assert FlagKind.PASS_LIST.appends
    assert not FlagKind.ENUM_LIST.appends
