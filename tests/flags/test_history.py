from __future__ import annotations

import pytest

from xla_flags import Catalog, history_of, shipped_versions
from xla_flags.history import recorded_names, recorded_releases
from xla_flags.schema import version_key


def test_releases_are_in_order_and_hold_the_shipped_ones() -> None:
    releases = recorded_releases()
    assert list(releases) == sorted(releases, key=version_key)
    assert {*shipped_versions()} <= {*releases}


@pytest.mark.parametrize("version", shipped_versions())
def test_history_agrees_with_the_catalogs(version: str) -> None:
    flags = Catalog.for_jaxlib(version).flags
    known = {name for name in recorded_names() if (each := history_of(name)) and each.known_in(version)}
    assert known == {*flags}


def test_what_a_history_says() -> None:
    level = history_of("xla_gpu_graph_level")
    assert level is not None
    assert (level.since, level.until, level.gone_in) == ("0.4.20", "0.7.0", "0.7.2")
    assert (level.from_start, level.current, level.span) == (False, False, "jaxlib 0.4.20 to 0.7.0")
    dump = history_of("xla_dump_to")
    assert dump is not None
    assert (dump.from_start, dump.current, dump.gone_in) == (True, True, None)
    assert dump.span == f"jaxlib {recorded_releases()[0]} (or earlier) and later"
    once = history_of("xla_allow_get_default_platform")
    assert once is not None
    assert once.span == "jaxlib 0.5.3"
    assert history_of("xla_never_was") is None
