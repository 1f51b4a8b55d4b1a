from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xla_flags import Catalog, Diagnostic, Severity, Span, parse, render
from xla_flags.rendering import WIDTH, printable, render_one

NEW = Catalog.for_jaxlib("0.12.0.1")


def test_the_whole_of_a_remark() -> None:
    text = "--xla_dump_to=/x --xla_gpu_autotune_levl=2"
    assert render(parse(text, NEW)) == (
        "error[unknown-flag]: there is no flag xla_gpu_autotune_levl\n"
        "  | --xla_dump_to=/x --xla_gpu_autotune_levl=2\n"
        "  |                  ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  = write: --xla_gpu_autotune_level=2"
    )


def test_nothing_to_say() -> None:
    assert render(parse("--xla_dump_to=/x", NEW)) == ""


def test_leaving_out_and_hints() -> None:
    remark = Diagnostic(Severity.NOTE, "c", Span(0, 1), "why", "", "because")
    assert render_one(remark, "ab").splitlines()[-2:] == ["  = leave it out", "  = because"]


def carets(text: str, span: Span) -> tuple[str, str]:
    lines = render_one(Diagnostic(Severity.ERROR, "c", span, "m"), text).splitlines()
    return lines[1], lines[2]


def test_one_line_of_many() -> None:
    shown, marks = carets("--a\n--b=1 --c\n--d", Span(4, 9))
    assert (shown, marks) == ("  | --b=1 --c", "  | ^^^^^")
    shown, marks = carets("--a='x\ny' --b", Span(0, 9))
    assert (shown, marks) == ("  | --a='x", "  | ^^^^^^")


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "--a " * 100 + "--bogus" + " --a" * 100
    start = text.index("--bogus")
    shown, marks = carets(text, Span(start, start + 7))
    assert len(shown) <= WIDTH + 10
    assert shown[marks.index("^") : marks.rindex("^") + 1] == "--bogus"
    assert shown.startswith("  | …")
    assert shown.endswith("…")


@given(st.text(max_size=300), st.data())
def test_carets_stand_under_the_place(text: str, data: st.DataObject) -> None:
    if not text:
        return
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    shown, marks = carets(text, Span(start, end))
    assert shown.isprintable()
    assert len(shown) <= WIDTH + 10
    first = marks.index("^")
    if text[start] not in "\r\n":
        assert shown[first] == printable(text[start])


def test_bytes_that_are_no_text_can_be_printed() -> None:
    rendered = render(parse(b"--xla_gpu_autotune_level=\xff\x1b[31m", NEW))
    rendered.encode()
    assert "\x1b" not in rendered
