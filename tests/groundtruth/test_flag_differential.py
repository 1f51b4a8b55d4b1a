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
from xla_flags import Catalog, FieldSpec, ParseResult, check_compiler_options, parse, shipped_versions
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


NUMBERS = [
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    -(2**63),
    0.0,
    1.0,
    -0.5,
    1e39,
    1e-42,
    123456.789,
    1234567,
    None,
    b"1",
]
TEXTS = [
    "",
    "a",
    "a,b",
    ",",
    "@1",
    "@x",
    "a:1",
    "a:x",
    "é",
    "1",
    " 1 ",
    "+1",
    "0x1",
    "1.5",
    "True",
    "true",
    "99",
    "inf",
]


def values(field: FieldSpec) -> st.SearchStrategy[object]:
    """Values for a compiler option, good and bad."""
    likely = st.sampled_from(TEXTS)
    if field.enum is not None:
        names = [*field.enum.numbers]
        each = st.sampled_from([*names, names[-1].lower(), "1", ""])
        likely = st.lists(each, min_size=1, max_size=2 if field.repeated else 1).map(",".join)
    return st.one_of(likely, likely, st.sampled_from(TEXTS), st.sampled_from(NUMBERS))


def compile_with(options: dict[str, object]) -> tuple[str | None, str | None]:
    import jax

    try:
        # A new function each time: jax would take an earlier program, as 1 and True are one key to its cache.
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options=options)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__, str(error).split("\n")[0]
    return None, None


@hypothesis.settings(few, max_examples=EXAMPLES // 3)
@hypothesis.given(data=st.data())
def test_random_compiler_options(data: st.DataObject) -> None:
    catalog = Catalog.for_jaxlib(RECORDED)
    # Options of the GPU compiler are checked like all others, and the CPU compiler then leaves them alone.
    fields = [
        field
        for name, field in catalog.fields.items()
        if (name.startswith("xla_gpu") and "early_exit" not in name)
        or name in ("xla_disable_hlo_passes", "xla_fuel")
    ]
    special = [field for field in fields if field.repeated or field.type not in ("bool", "int64")]
    chosen = data.draw(st.lists(st.sampled_from(special) | st.sampled_from(fields), min_size=1, max_size=2))
    options = {field.name: data.draw(values(field)) for field in chosen}
    result = check_compiler_options(options, catalog)
    assert (result.exception, result.message) == compile_with(options)
