from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from absl import flags as absl_flags
from absl.testing import absltest, flagsaver

from tests.flags.jaxlibs import needs_jaxlib
from tests.flags.processes import run_python
from xla_flags import Catalog, CommandBufferUpdateMode, XlaFlagsError, parse
from xla_flags.absl import ORIGIN, apply_to_environ, define_flags, to_xla_flags
from xla_flags.schema import FlagKind

NEW = Catalog.for_jaxlib("0.12.0.1")
NAMES = (
    "xla_gpu_command_buffer_update_mode",
    "xla_gpu_enable_command_buffer",
    "xla_gpu_autotune_level",
    "xla_gpu_triton_gemm_any",
    "xla_gpu_detect_nan",
    "xla_dump_to",
    "xla_disable_hlo_passes",
    "xla_gpu_autotune_gemm_rtol",
)


@pytest.fixture
def values() -> Any:
    found = absl_flags.FlagValues()
    assert define_flags(NAMES, found, NEW) == NAMES
    return found


def test_importing_defines_nothing() -> None:
    assert not [name for name in absl_flags.FLAGS if name.startswith("xla_")]


def test_defaults_are_those_of_xla(values: Any) -> None:
    values(["program"])
    assert values.xla_gpu_command_buffer_update_mode is CommandBufferUpdateMode.ALWAYS_UPDATE
    assert (values.xla_gpu_autotune_level, values.xla_gpu_triton_gemm_any) == (4, True)
    assert (values.xla_gpu_detect_nan, values.xla_dump_to) == ("none", "")
    assert to_xla_flags(values) == ""


def test_what_was_given_becomes_flags(values: Any) -> None:
    values(
        [
            "program",
            "--xla_gpu_command_buffer_update_mode=SKIP_PROFILED",
            "--noxla_gpu_triton_gemm_any",
            "--xla_gpu_enable_command_buffer=+WHILE",
            "--xla_gpu_enable_command_buffer=-FUSION",
            "--xla_dump_to",
            "/a b",
            "--xla_gpu_autotune_gemm_rtol=0.5",
        ]
    )
    assert values.xla_gpu_command_buffer_update_mode is CommandBufferUpdateMode.SKIP_PROFILED
    result = parse(to_xla_flags(values), NEW)
    assert result.changed == {
        "xla_gpu_command_buffer_update_mode": "SKIP_PROFILED",
        "xla_gpu_triton_gemm_any": False,
        "xla_gpu_enable_command_buffer": [
            *("COLLECTIVES_KERNEL", "CONDITIONAL", "CUBLAS", "CUBLASLT", "CUDNN", "CUSTOM_CALL"),
            *("DYNAMIC_SLICE_FUSION", "WHILE"),
        ],
        "xla_dump_to": "/a b",
        "xla_gpu_autotune_gemm_rtol": 0.5,
    }


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--xla_gpu_command_buffer_update_mode=skip_temp", "write SKIP_TEMP"),
        ("--xla_gpu_command_buffer_update_mode=NEVER_UPDATE", "write SKIP_TEMP"),
        ("--xla_gpu_enable_command_buffer=FUSION,+WHILE", "write \\+FUSION,\\+WHILE"),
        ("--xla_gpu_detect_nan=2", "none\\|warning\\|fail\\|dump"),
        ("--xla_gpu_autotune_level=x", "xla_gpu_autotune_level"),
        ("--xla_gpu_autotune_level=99999999999", "range"),
        ("--xla_disable_hlo_passes=a:b", "integer"),
    ],
)
def test_wrong_values_are_errors_of_absl(values: Any, argument: str, message: str) -> None:
    with pytest.raises(absl_flags.IllegalFlagValueError, match=message):
        values(["program", argument])


def test_a_flagfile_works(values: Any, tmp_path: Path) -> None:
    file = tmp_path / "flags"
    file.write_text("--xla_gpu_autotune_level=2\n# a comment\n--xla_dump_to=/d\n")
    values(["program", f"--flagfile={file}"])
    assert to_xla_flags(values) == "--xla_gpu_autotune_level=2 --xla_dump_to=/d"


def test_the_users_variable_wins(values: Any) -> None:
    values(["program", "--xla_gpu_autotune_level=2", "--xla_disable_hlo_passes=a"])
    environ = {"XLA_FLAGS": "--xla_gpu_autotune_level=3 --xla_disable_hlo_passes=b"}
    flags = apply_to_environ(values, environ, NEW)
    assert environ["XLA_FLAGS"] == flags.text
    assert parse(flags.text, NEW).changed == {
        "xla_gpu_autotune_level": 3,
        "xla_disable_hlo_passes": ["a", "b"],
    }
    assert flags.origins == {
        "xla_gpu_autotune_level": ("XLA_FLAGS",),
        "xla_disable_hlo_passes": (ORIGIN, "XLA_FLAGS"),
    }


def test_values_set_in_code_count(values: Any) -> None:
    values.mark_as_parsed()
    with flagsaver.flagsaver():
        values.xla_gpu_autotune_level = 1
        values.xla_gpu_command_buffer_update_mode = CommandBufferUpdateMode.SKIP_TEMP
    assert parse(to_xla_flags(values), NEW).changed == {
        "xla_gpu_autotune_level": 1,
        "xla_gpu_command_buffer_update_mode": "SKIP_TEMP",
    }


def test_unparsed_flags_cannot_be_rendered(values: Any) -> None:
    with pytest.raises(absl_flags.UnparsedFlagAccessError):
        to_xla_flags(values)


def test_defining_twice_is_harmless_and_unknown_names_are_not(values: Any) -> None:
    assert define_flags(NAMES, values, NEW) == ()
    with pytest.raises(XlaFlagsError, match="xla_gpu_graph_level is gone"):
        define_flags(["xla_gpu_graph_level"], values, NEW)


@pytest.mark.parametrize("version", ["0.10.2", "0.12.0.1"])
def test_every_flag_can_be_defined_and_given_its_default(version: str) -> None:
    catalog = Catalog.for_jaxlib(version)
    values = absl_flags.FlagValues()
    assert define_flags(None, values, catalog) == tuple(catalog.flags)
    values(["program"])
    assert to_xla_flags(values) == ""
    for name, flag in catalog.flags.items():
        if flag.kind is not FlagKind.NO_EFFECT and values[name].value is not None:
            values[name].value = values[name].value  # as the user who states the default
            values[name].using_default_value = False
    assert parse(to_xla_flags(values), catalog).changed == {}


class UnderAbsltest(absltest.TestCase):
    def test_flags_are_defined_and_restored(self) -> None:
        values = absl_flags.FlagValues()
        define_flags(["xla_gpu_autotune_level"], values, NEW)
        values(["program"])
        with flagsaver.flagsaver():
            values.xla_gpu_autotune_level = 1
        assert to_xla_flags(values) == "--xla_gpu_autotune_level=1"


PROGRAM = """
from absl import app, flags
import xla_flags.absl
from xla_flags import AlreadyReadError
xla_flags.absl.define_flags()
def main(argv):
    print(flags.FLAGS.xla_gpu_command_buffer_update_mode)
    print(xla_flags.absl.apply_to_environ().text)
    import jax
    jax.devices()
    from xla_flags.environ import unread_arguments, used_options
    print(used_options().xla_gpu_command_buffer_update_mode, unread_arguments())
    flags.FLAGS.xla_gpu_autotune_level = 1
    try:
        xla_flags.absl.apply_to_environ()
    except AlreadyReadError as error:
        print(error)
app.run(main)
"""
MODE = "--xla_gpu_command_buffer_update_mode"


@needs_jaxlib
def test_a_whole_program() -> None:
    first, *others = Catalog.installed().flags["xla_gpu_command_buffer_update_mode"].enum.numbers  # type: ignore[union-attr]
    done = run_python(PROGRAM, [f"{MODE}={others[0]}"], XLA_FLAGS="--xla_gpu_autotune_level=3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == others[0]
    assert lines[1] == f"{MODE}={others[0]} --xla_gpu_autotune_level=3"
    assert lines[2] == f"{others[0]} ()"
    assert first != others[0]


@needs_jaxlib
def test_help_shows_the_values() -> None:
    done = run_python(PROGRAM, ["--help"])
    assert "--xla_gpu_command_buffer_update_mode:" in done.stdout
    text = "".join(done.stdout.split())
    members = Catalog.installed().flags["xla_gpu_command_buffer_update_mode"].enum
    assert members is not None
    assert f"<{'|'.join(members.numbers)}>" in text
