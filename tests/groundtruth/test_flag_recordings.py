"""Every recorded verdict of three jaxlibs on values of XLA_FLAGS and on compiler options, compared whole."""

from __future__ import annotations

import collections
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from xla_flags import Catalog, check_compiler_options, parse, shipped_versions

DATA = Path(__file__).parents[1] / "data" / "flags"
VERSIONS = ("0.10.2", "0.11.2", "0.12.0.1")
RECORDS = {"0.10.2": 2245, "0.11.2": 2412, "0.12.0.1": 2497}
RULES = (
    "enum",
    "perflag",
    "enumlist",
    "token",
    "fuzz",
    "list",
    "mixture",
    "file",
    "alias_or_noop",
    "duration",
)
RULES += ("float", "name", "filter", "map", "int32", "bool", "string", "int64", "fuel", "reset_flag", "help")
RULES += ("repeat", "env", "bad_value", "forced_by_jaxlib")


def lines(name: str) -> list[dict[str, Any]]:
    text = gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def test_all_recorded_jaxlibs_have_a_catalog() -> None:
    assert set(VERSIONS) <= set(shipped_versions())


@pytest.mark.parametrize("version", VERSIONS)
def test_flags(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    seen: collections.Counter[str] = collections.Counter()
    wrong = []
    for record in lines(f"jaxlib-{version}"):
        seen[record["rule"].split("/")[0]] += 1
        value = None if record.get("unset") else record["xla_flags"]
        result = parse(value, catalog, files=record.get("files", {}))
        got = (result.outcome, result.message, result.changed, [*result.log], result.usage)
        wanted = tuple(record.get(key) for key in ("outcome", "message", "changed"))
        wanted += (record.get("log", []), record.get("usage"))
        if got != wanted:
            wrong.append((record["rule"], value, got, wanted))
    assert not wrong, f"{len(wrong)} differ, such as {wrong[:3]}"
    assert seen.keys() == set(RULES)
    assert seen.total() == RECORDS[version]


@pytest.mark.parametrize("version", VERSIONS)
def test_compiler_options(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    records = lines(f"compiler_options-{version}")
    wrong = []
    for record in records:
        base = parse(record["xla_flags"], catalog, files={})
        result = check_compiler_options(record["options"], base=base)
        got = [result.outcome, result.exception, result.message, result.non_default]
        wanted = [record[key] for key in ("outcome", "exception", "message", "non_default")]
        if result.ok and record["non_default"] is None:
            # Observed through dumps, which an option that steers dumps turned off.
            assert any(name.startswith("xla_dump") for name in record["options"])
            got, wanted = got[:3], wanted[:3]
        if got != wanted:
            wrong.append((record["options"], got, wanted))
    assert not wrong, f"{len(wrong)} differ, such as {wrong[:3]}"
    assert len(records) > 200


def observed(version: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(gzip.decompress((DATA / f"observed-{version}.json.gz").read_bytes()))
    return data


@pytest.mark.parametrize("version", VERSIONS)
def test_catalogs_hold_what_was_observed(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    facts = observed(version)
    assert [*catalog.flags] == [row["name"] for row in facts["flags"]]
    for row in facts["flags"]:
        flag = catalog.flags[row["name"]]
        assert (flag.type, flag.default) == (row["type"], row["default"])
        if flag.kind != "no_effect":
            assert ([flag.field.name] if flag.field else []) == row["sets"]
        if row["enum_values"] is not None:
            assert flag.enum is not None
            assert [[*pair] for pair in flag.enum.numbers.items()] == row["enum_values"]
    assert catalog.fields.keys() == {row["field"] for row in facts["fields"]}
    for row in facts["fields"]:
        field = catalog.fields[row["field"]]
        assert (field.number, field.type, field.repeated, field.default) == (
            row["field_number"],
            row["proto_type"],
            row["repeated"],
            row["default"],
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_flag_takes_its_sample(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    for row in observed(version)["flags"]:
        result = parse(f"--{row['name']}='{row['sample']}'", catalog, files={})
        assert result.ok, (row, result.message)
