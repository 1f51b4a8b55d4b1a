from __future__ import annotations

import pytest

from xla_flags import Catalog, Severity, parse
from xla_flags.advise_effects import advise_effects
from xla_flags.subject import Subject

NEW = Catalog.for_jaxlib("0.12.0.1")


@pytest.mark.parametrize(
    ("text", "severity", "code"),
    [
        ("--xla_gpu_autotune_level=4", "note", "already-default"),
        ("--xla_gpu_enable_command_buffer=+FUSION", "note", "already-default"),
        ("--xla_gpu_enable_cudnn_fmha=true", "warning", "no-effect"),
        ("--xla_cpu_use_thunk_runtime", "warning", "no-effect"),
        ("--xla_gpu_enable_fast_min_max=true", "warning", "forced"),
        ("--xla_dump_to=/x--xla_gpu_autotune_level=2", "warning", "glued-flags"),
        ("--xla_dump_to=$HOME/x", "warning", "shell-variable"),
        ("--xla_dump_to=~/x", "warning", "tilde"),
        ("--xla_dump_to=“/x”", "warning", "typographic"),
        ("--xla_disable_hlo_passes=", "warning", "empty-entry"),
        ("--xla_dump_to='/x --xla_gpu_autotune_level=2", "warning", "unclosed-quote"),
        ("--xla_gpu_autotune_level=3 --xla_gpu_autotune_level=2", "note", "overridden"),
        (
            "--xla_gpu_graph_enable_concurrent_region --xla_gpu_command_buffer_scheduling_mode=SERIALIZE",
            "note",
            "overridden",
        ),
    ],
)
def test_accepted_but(text: str, severity: str, code: str) -> None:
    result = parse(text, NEW)
    assert result.ok
    assert (severity, code) in [(each.severity, each.code) for each in advise_effects(Subject(result))]


@pytest.mark.parametrize(
    "text",
    [
        "--xla_gpu_autotune_level=2",
        "--xla_dump_to='/a b'",
        "--xla_dump_hlo_pass_re=.*$",
        "--xla_disable_hlo_passes=a --xla_disable_hlo_passes=b",
        "--xla_backend_extra_options=a=1 --xla_backend_extra_options=b=2",
        "--xla_gpu_enable_command_buffer=+WHILE --xla_gpu_enable_command_buffer=-FUSION",
        "--xla_gpu_ptx_compiler_extra_flags='--opt-level=3 -v'",
    ],
)
def test_nothing_is_said_of(text: str) -> None:
    assert advise_effects(Subject(parse(text, NEW))) == []


@pytest.mark.parametrize(
    ("text", "suggestion", "hint"),
    [
        ("--xla_gpu_enable_cudnn_fmha=true", "", None),
        ("--xla_dump_to=“/x”", "/x", None),
        ("--xla_dump_to=“/x", None, None),
        ("--xla_dump_to=$HOME/x", None, "single quotes"),
        ("--xla_dump_to=~/x", None, "$HOME"),
    ],
)
def test_what_to_write_instead(text: str, suggestion: str | None, hint: str | None) -> None:
    (remark,) = advise_effects(Subject(parse(text, NEW)))
    assert remark.suggestion == suggestion
    assert (hint or "") in (remark.hint or "")


def test_effects_are_never_errors() -> None:
    text = "--xla_gpu_autotune_level=3 --xla_gpu_autotune_level=2 --xla_cpu_use_thunk_runtime --bogus"
    remarks = advise_effects(Subject(parse(text, NEW)))
    assert Severity.ERROR not in {each.severity for each in remarks}
