from __future__ import annotations

import pytest

from jax_cmdbuf.executable.conversion_rules import KIND_TYPES, NEWEST_SERIES, RULES, rules_for


def test_every_series_has_a_row_and_the_newest_serves_the_unknown() -> None:
    assert set(RULES) == {"0.10", "0.11", "0.12"}
    assert all(rules.series == series for series, rules in RULES.items())
    assert rules_for(None) is rules_for("0.99") is RULES[NEWEST_SERIES]


def test_collective_groups_are_recorded_since_0_12() -> None:
    assert "kGroup" not in rules_for("0.10").kind_types
    assert "kGroup" not in rules_for("0.11").kind_types
    assert rules_for("0.12").kind_types["kGroup"] == "COLLECTIVES"


@pytest.mark.parametrize(("series", "size"), [("0.10", 8), ("0.11", 8), ("0.12", None)])
def test_types_that_an_old_driver_loses(series: str, size: int | None) -> None:
    affected = rules_for(series).types_needing_cuda_12_3
    assert (None if affected is None else len(affected)) == size
    if affected is not None:
        assert "FUSION" not in affected
        assert affected <= set(KIND_TYPES.values())
