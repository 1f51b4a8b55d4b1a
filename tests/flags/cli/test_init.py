from __future__ import annotations

import subprocess
import sys

import pytest

from tests.flags.processes import FLAGS
from xla_flags.cli import VERBS, main


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["bogus"],
        ["check", "--jaxlib=9"],
        ["check", "--jaxlb=0.12"],
        ["check", "--format=xml"],
        ["check", "--compiler-options=nope"],
        ["check", "--compiler-options=[1]"],
        ["explain", "--jaxlib=0.12", "xla_gpu_bogus"],
        ["explain", "--jaxlib=0.12", "no such file"],
        ["list", "--jaxlib"],
        ["diff", "one"],
        ["diff", "0.1", "0.2"],
        ["diff", "0.1", "installed"],
        ["explain", "--jaxlib=0.12", "xla_\x1b[31m"],
        ["diff", "--jaxlib=all", "", ""],
        ["format", "--jaxlib=all", ""],
        ["format", "--jaxlib=0.12", "no-such-file"],
        ["catalog", "--jaxlib-from-env", "--jaxlib=0.12"],
        ["catalog", "--jaxlib=all", "--format=json"],
    ],
)
def test_misuse_is_one_sentence(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("xla-flags: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    assert printed.err.strip().isprintable()


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches_by_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert f"  xla-flags {verb}" in capsys.readouterr().out


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"    {verb}" in printed for verb in VERBS)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "diff"])
def test_every_verb_speaks_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main([verb, "--format=json", "--jaxlib=0.12"]) == 0
    json.loads(capsys.readouterr().out)


def test_it_runs_as_a_module_and_without_jax() -> None:
    code = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "from xla_flags.cli import main\n"
        "sys.exit(main(['check', '--jaxlib=0.12', '--xla_gpu_graph_level=0']))"
    )
    environ = {"PYTHONPATH": FLAGS + ":" + ":".join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ
    )
    assert (done.returncode, done.stderr) == (1, "")
    done = subprocess.run(
        [sys.executable, "-m", "xla_flags", "parse", "--jaxlib=0.12", "--", "--xla_dump_to=/d"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        '{"jaxlib": "0.12.0.1", "outcome": "ok", "message": null, "changed": {"xla_dump_to": "/d"}}\n'
    )
