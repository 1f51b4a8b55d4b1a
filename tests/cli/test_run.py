"""``jax-cmdbuf run``: the script runs as ever, and the report comes whatever became of it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from jax_cmdbuf.cli import main
from tests.cli.run_scripts import LOOP, ROOT, TWO_GEMM, environment, run

PROFILED = "--update-mode=SKIP_PROFILED"


@pytest.fixture
def script(tmp_path):
    """Writes a script and runs it with options of ``run``."""

    def write_and_run(code, *options, arguments=(), **changes):
        (tmp_path / "train.py").write_text(code)
        return run("run", *options, "train.py", *arguments, folder=tmp_path, **changes)

    return write_and_run


def test_the_report_follows_what_the_script_prints(script):
    status, out, err = script(LOOP, PROFILED, arguments=("--epochs", "-x"))
    assert status == 0, err
    first, second, *_ = out.splitlines()
    assert first == "the script prints (128, 128) ['--epochs', '-x']"
    assert second.startswith("train.py --epochs -x  finished after")
    assert "multiply  6 executions on device 0 (simulated h200), SKIP_PROFILED: active" in out
    assert "persistent allocations: 4 of 5 (80 %)" in out
    assert "commands updated per step: 3 of 4 (75 %)" in out
    assert "→ reuse result result:" in out


def test_a_file_leaves_stdout_to_the_script(script, tmp_path):
    status, out, err = script(LOOP, PROFILED, "--format=json", "--output=run.json")
    assert (status, len(out.splitlines())) == (0, 1), err
    data = json.loads((tmp_path / "run.json").read_text())
    (function,) = data["functions"]
    assert (function["function"], function["phase"], function["calls"]) == ("multiply", "active", 6)
    uses = {row["path"]: row["use"] for row in function["allocations"]}
    assert uses["a"]["kept"] == 5
    assert data["processes"][0]["command"] == ["train.py"]


@pytest.mark.parametrize(
    ("ending", "status", "outcome", "words"),
    [
        (
            "raise ValueError('oops')",
            1,
            "failed (ValueError: oops)",
            "    raise ValueError('oops')\nValueError: oops\n",
        ),
        ("sys.exit(7)", 7, "exited (exit status 7)", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", 130, "interrupted", "KeyboardInterrupt"),
    ],
    ids=["exception", "exit", "interrupt"],
)
def test_the_report_comes_whatever_happens(script, ending, status, outcome, words):
    found, out, err = script(LOOP + ending, PROFILED)
    assert found == status
    assert f"train.py  {outcome}" in out
    assert "multiply  6 executions" in out
    assert words in err
    assert "/jax_cmdbuf/cli/" not in err  # no frame of ours in the traceback
    assert "/jax_cmdbuf/api/" not in err


def test_an_exception_inside_a_jitted_function(script):
    code = TWO_GEMM + "multiply(matrix(1), 'no', matrix(3))\n"
    status, out, err = script(code)
    assert status == 1
    assert "failed (TypeError: " in out
    assert err.startswith("Traceback (most recent call last):\n") or "Traceback" in err


def test_jax_is_the_script_s_to_import(script):
    code = """
import os, sys
assert "jax" not in sys.modules and "numpy" not in sys.modules
os.environ["JAX_ENABLE_X64"] = "1"
from jax import jit
import jax.numpy as jnp
print(jit(lambda x: x)(jnp.asarray(1.5)).dtype)
"""
    assert script(code)[1].splitlines()[0] == "float64"


def test_defaults_of_decorated_functions_and_of_child_processes(script):
    code = (
        TWO_GEMM
        + """
import os
print(multiply.observed.mode, multiply.observed.target, multiply.runtime_name)
print({name: value for name, value in os.environ.items() if name.startswith(("JAX_CMDBUF_", "XLA_PYTHON"))})
"""
    )
    options = (PROFILED, "--target=h100", "--runtime=simulated")
    status, out, err = script(code, *options)
    assert status == 0, err
    assert out.splitlines()[0] == "SKIP_PROFILED h100 simulated"
    assert out.splitlines()[1] == str(
        {
            "JAX_CMDBUF_MODE": "SKIP_PROFILED",
            "XLA_PYTHON_CLIENT_ALLOCATOR": "vmm",
            "JAX_CMDBUF_TARGET": "h100",
            "JAX_CMDBUF_RUNTIME": "simulated",
        }
    )


def test_without_options_nothing_is_set(script):
    code = TWO_GEMM + "import os\nprint(multiply.observed.mode, [n for n in os.environ if 'CMDBUF' in n])\n"
    assert script(code)[1].splitlines()[0] == "ALWAYS_UPDATE []"


def test_a_page_and_a_trace(script, tmp_path):
    status, _, err = script(LOOP, PROFILED, "--report=run.html", "--trace=trace.json")
    assert status == 0, err
    assert "multiply" in (tmp_path / "run.html").read_text()
    slices = [
        each["name"]
        for each in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        if each["ph"] == "X"
    ]
    assert slices == ["plain thunks"] * 3 + ["record"] + ["update"] * 2
    assert not list(tmp_path.glob(".*"))


def test_what_is_not_simulated_is_said(script):
    code = """
import jax.numpy as jnp, jax_cmdbuf
f = jax_cmdbuf.command_buffer(lambda x: x + 1, plan=b"none")
print(f(jnp.ones(2)))
"""
    status, out, _ = script(code)
    assert status == 0
    assert "! <lambda> runs, but is not simulated" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "give a script, or a module after -m"),
        (("-m",), "-m needs the name of a module"),
        (("none.py",), "there is no script none.py"),
        (("-m", "no_such.module"), "cannot run the module no_such.module"),
        (("--update-mode=NEVER", "train.py"), "--update-mode is 'NEVER'"),
        (("--target=none", "train.py"), "unknown target 'none'"),
        (("--runtime=gpu", "train.py"), "--runtime is 'gpu'"),
        (("--output=none/run.json", "train.py"), "cannot write none/run.json"),
        (("--report=none/run.html", "train.py"), "cannot write none/run.html"),
    ],
)
def test_misuse_is_one_sentence_before_anything_runs(tmp_path, monkeypatch, capsys, words, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise AssertionError('it ran')\n")
    assert main(["run", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"jax-cmdbuf: {text}")
    assert captured.err.count("\n") == 1


def test_the_help_teaches_by_example(capsys):
    assert main(["run", "--help"]) == 0
    text = capsys.readouterr().out
    assert "jax-cmdbuf run --all --report=run.html --trace=run.json train.py" in text
    assert "Options of run come before the script" in text


@pytest.mark.aot
@pytest.mark.parametrize("name", ["flax_mnist", "equinox_gru", "jax_regression"])
def test_a_program_that_knows_nothing_of_us_prints_the_same(tmp_path, name):
    example = ROOT / "examples" / f"{name}.py"
    words = ["--steps=8"] if name == "flax_mnist" else []
    plain = subprocess.run(
        [sys.executable, str(example), *words],
        env=environment(PYTHONPATH=""),
        capture_output=True,
        text=True,
        check=True,
    )
    output = tmp_path / "run.json"
    options = ("--all", PROFILED, "--format=json", f"--output={output}")
    status, out, err = run("run", *options, example, *words, folder=tmp_path)
    assert status == 0, err
    assert out == plain.stdout
    functions = {each["function"]: each for each in json.loads(output.read_text())["functions"]}
    step = functions[{"flax_mnist": "train_step", "equinox_gru": "step", "jax_regression": "update"}[name]]
    assert step["phase"] == "active"
    assert step["commands"] > 10
    assert "donate" in {each["action"] for each in step["advice"]}


ABSL = (
    TWO_GEMM
    + """
import os
from absl import app, flags
from xla_flags import absl as xla_absl

xla_absl.define_flags(["xla_gpu_command_buffer_update_mode", "xla_dump_to"])
flags.DEFINE_integer("steps", 4, "how many")

def main(argv):
    xla_absl.apply_to_environ()
    for _ in range(flags.FLAGS.steps):
        multiply(matrix(1), matrix(2), matrix(3))
    print(argv[1:], multiply.update_mode_status.requested, os.environ["XLA_FLAGS"])

app.run(main)
"""
)
MODE_FLAG = "--xla_gpu_command_buffer_update_mode=SKIP_PROFILED"


needs_the_mode = pytest.mark.skipif(
    tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11),
    reason="jaxlib 0.10 has no SKIP_PROFILED, so its absl flag refuses the value",
)


@needs_the_mode
def test_an_absl_program_s_flag_reaches_the_decorator_and_xla(tmp_path):
    (tmp_path / "train.py").write_text(ABSL)
    words = ["train.py", MODE_FLAG, f"--xla_dump_to={tmp_path / 'dump'}", "rest"]
    done = subprocess.run(
        [sys.executable, *words],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"['rest'] SKIP_PROFILED {MODE_FLAG}")
    # What XLA itself took in.
    options = [path.read_text() for path in (tmp_path / "dump").glob("*debug_options*")]
    assert options
    assert all("xla_gpu_command_buffer_update_mode: SKIP_PROFILED" in text for text in options)


@needs_the_mode
def test_an_absl_program_under_run(script):
    status, out, err = script(ABSL, arguments=(MODE_FLAG, "--steps=5"))
    assert status == 0, err
    assert out.startswith(f"[] SKIP_PROFILED {MODE_FLAG}\n")
    assert "multiply  5 executions on device 0 (simulated h200), SKIP_PROFILED: active" in out


def test_an_absl_program_s_mistake_is_absl_s_to_tell(script):
    status, out, err = script(ABSL, arguments=("--xla_gpu_command_buffer_update_mode=SOMETIMES",))
    assert status == 1
    assert "FATAL Flags parsing error" in err
    assert "exited (exit status 1)" in out
