"""Fresh random values of XLA_FLAGS: the installed jaxlib and the parser give one verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.flags.jaxlibs import INSTALLED, library, needs_jaxlib
from tests.groundtruth.xla_flags_oracle import Judge, Verdict
from tests.groundtruth.xla_flags_texts import texts
from xla_flags import Catalog, ParseResult, parse, shipped_versions
from xla_flags.installed import installed_version
from xla_flags.probe import probe

# jaxlib is started once; each question is a fork of that process and takes some ten milliseconds.
EXAMPLES = 120
RECORDED = installed_version() if INSTALLED else ""
pytestmark = [
    needs_jaxlib,
    pytest.mark.skipif(RECORDED not in shipped_versions(), reason="no exact catalog of the installed jaxlib"),
]
few = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with probe() as ask:
        yield Judge(ask, library())


def verdict(result: ParseResult) -> Verdict:
    return Verdict(str(result.outcome), result.message, result.usage, result.changed, [*result.log])


@few
@hypothesis.given(data=st.data())
def test_random_values(judge: Judge, data: st.DataObject) -> None:
    catalog = Catalog.for_jaxlib(RECORDED)
    text = data.draw(texts(catalog))
    assert verdict(parse(text, catalog, cwd="/")) == judge(text.encode(), "/")


@hypothesis.settings(few, max_examples=EXAMPLES // 3)
@hypothesis.given(data=st.data())
def test_random_files(judge: Judge, tmp_path: Path, data: st.DataObject) -> None:
    catalog = Catalog.for_jaxlib(RECORDED)
    content = data.draw(st.lists(st.one_of(texts(catalog), st.sampled_from(["\0", " "])), max_size=3)).copy()
    (tmp_path / "flags").write_bytes("".join(content).encode())
    assert verdict(parse("flags", catalog, cwd=tmp_path)) == judge(b"flags", tmp_path)


@hypothesis.settings(few, max_examples=EXAMPLES // 3)
@hypothesis.given(st.binary(max_size=8).map(lambda value: value.replace(b"\0", b"")))
def test_random_bytes(judge: Judge, value: bytes) -> None:
    catalog = Catalog.for_jaxlib(RECORDED)
    text = b"--xla_cpu_enable_fast_math=" + value
    result, judged = parse(text, catalog, cwd="/"), judge(text, "/")
    assert verdict(result) == judged
