from __future__ import annotations

import pytest

from xla_flags import Catalog, Severity, parse
from xla_flags.advise_text import advise_file, advise_rest
from xla_flags.subject import Subject

NEW = Catalog.for_jaxlib("0.12.0.1")
DUMP = "--xla_dump_to=/x"


@pytest.mark.parametrize(
    ("value", "code", "suggestion"),
    [
        (" \n", "blank-value", ""),
        ("flags.txt", "no-such-file", None),
        ("~/flags.txt", "no-such-file", None),
        ("# --xla_dump_to", "comment", None),
        (f"'{DUMP}", "outer-quotes", DUMP),
        (f'"{DUMP}" "{DUMP}"', "outer-quotes", f"{DUMP} {DUMP}"),
        (f"'{DUMP}', '{DUMP}'", "outer-quotes", f"{DUMP} {DUMP}"),
        (f"“{DUMP}”", "typographic", DUMP),
        (f"\u00a0{DUMP}", "typographic", DUMP),
        ("$XLA_EXTRA", "shell-variable", None),
        (f"$(cat x) {DUMP}", "shell-variable", DUMP),
        (f"export XLA_FLAGS={DUMP}", "assignment-kept", DUMP),
        (f", {DUMP}", "stray-text", DUMP),
        (f"some {DUMP}", "stray-text", DUMP),
        ("xla_dump_to=/x xla_gpu_triton_gemm_any", "dashes", "--xla_dump_to=/x --xla_gpu_triton_gemm_any"),
    ],
)
def test_a_value_that_names_no_file(value: str, code: str, suggestion: str | None) -> None:
    (found,) = advise_file(Subject(parse(value, NEW, files={})))
    assert (found.severity, found.code, found.suggestion) == (Severity.ERROR, code, suggestion)
    assert found.span is None


def test_files_that_are_there() -> None:
    assert advise_file(Subject(parse("f", NEW, files={"f": DUMP}))) == []
    for files in ({"f": ""}, {"f/g": ""}):
        (found,) = advise_file(Subject(parse("f", NEW, files=files)))
        assert (found.severity, found.code) == (Severity.WARNING, "empty-file")
    assert advise_file(Subject(parse(DUMP, NEW))) == []


@pytest.mark.parametrize(
    ("text", "code", "under", "suggestion"),
    [
        (f"{DUMP} \\\n{DUMP}", "backslash", "\\", ""),
        (f"{DUMP} // x", "comment", "// x", ""),
        (f"{DUMP} %FLAGS%", "shell-variable", "%FLAGS%", ""),
        (f"{DUMP} \u00a0{DUMP}", "typographic", "\u00a0", " "),
        (f"{DUMP} \v{DUMP}", "typographic", "\v", " "),
        (f"{DUMP} –-xla_dump_to", "typographic", "–-xla_dump_to", "--xla_dump_to"),
        (f"{DUMP} xla_dump_to=/y", "dashes", "xla_dump_to=/y", "--xla_dump_to=/y"),
        ("--xla_dump_to='a'b", "after-quote", "b", ""),
        ("--xla_dump_to='a''b'", "after-quote", "'b'", ""),
        ("--xla_dump_to=a\"b c\"", "inner-quote", "--xla_dump_to=a\"b c\"", "--xla_dump_to='ab c'"),
        ("--xla_dump_to=“a b”", "typographic", "--xla_dump_to=“a b”", "--xla_dump_to='a b'"),
        (f"{DUMP} , {DUMP}", "stray-text", ",", ""),
    ],
)  # fmt: skip
def test_where_reading_stops(text: str, code: str, under: str, suggestion: str) -> None:
    result = parse(text, NEW, files={})
    (found,) = advise_rest(Subject(result))
    assert found.span is not None
    assert (found.severity, found.code) == (Severity.WARNING, code)
    assert (text[slice(*found.span)], found.suggestion) == (under, suggestion)


def test_what_is_lost_is_named() -> None:
    text = f"{DUMP} x " + " ".join(f"--xla_{letter}" for letter in "abcdef")
    (found,) = advise_rest(Subject(parse(text, NEW)))
    assert "6 flags after it never read: xla_a, xla_b, xla_c, xla_d, …" in found.message


def test_a_byte_order_mark_hides_a_whole_file() -> None:
    result = parse("f", NEW, files={"f": f"\ufeff{DUMP}"})
    (found,) = advise_rest(Subject(result))
    assert (found.code, found.span, found.suggestion) == ("byte-order-mark", (0, 1), "")
    assert result.tokens == ()
