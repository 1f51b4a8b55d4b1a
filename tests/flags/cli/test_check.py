from __future__ import annotations

import json
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.flags.test_carriers import install
from xla_flags import Catalog
from xla_flags.cli import main

MODE = "--xla_gpu_command_buffer_update_mode"
MAXTEXT = (
    "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_enable_triton_gemm=false "
    "--xla_gpu_graph_level=0 --xla_gpu_enable_highest_priority_async_stream=true "
    "--xla_gpu_all_reduce_combine_threshold_bytes=134217728 --xla_gpu_enable_pipelined_all_gather=true "
    "--xla_disable_hlo_passes=rematerialization"
)


def check(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    status = main(["check", *argv])
    printed = capsys.readouterr()
    assert printed.err == ""
    return status, printed.out


def as_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    _, printed = check(capsys, "--format=json", *argv)
    found: dict[str, Any] = json.loads(printed)
    return found


def test_everything_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = check(capsys, "--jaxlib=0.12", "--xla_gpu_graph_level=0 --xla_gpu_triton_gemm_any")
    assert status == 1
    assert printed == (
        "checking the flags given\n"
        "\n"
        "jaxlib 0.12.0.1: would end the process\n"
        "  Unknown flag in XLA_FLAGS: --xla_gpu_graph_level=0\n"
        "error[removed-flag]: xla_gpu_graph_level is gone (a flag of jaxlib 0.4.20 to 0.7.0): the level "
        "became a list of what command buffers record; the empty list turns them off\n"
        "  | --xla_gpu_graph_level=0 --xla_gpu_triton_gemm_any\n"
        "  | ^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  = write: --xla_gpu_enable_command_buffer=\n"
        "works: XLA_FLAGS='--xla_gpu_enable_command_buffer= --xla_gpu_triton_gemm_any'\n"
    )


def test_requested_accepted_differs(capsys: pytest.CaptureFixture[str]) -> None:  # B27
    text = "--xla_gpu_autotune_level=2 --xla_gpu_triton_gemm_any --xla_gpu_enable_command_buffer="
    rows = as_json(capsys, "--jaxlib=0.12", text)["results"][0]["flags"]
    assert [
        (each["flag"], each["asked"], each["accepted"], each["differs"], each["value"]) for each in rows
    ] == [
        ("xla_gpu_autotune_level", "2", True, True, 2),
        ("xla_gpu_triton_gemm_any", "true", True, False, True),
        ("xla_gpu_enable_command_buffer", "", True, True, []),
    ]
    assert rows[1]["remark"] == "is the default"
    status, printed = check(capsys, "--jaxlib=0.12", text)
    assert status == 0
    assert "3 options differ" not in printed
    assert "2 options differ from the default" in printed
    assert "(none)" in printed


def test_one_file_for_several_releases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:  # B06, B25
    file = tmp_path / "gpu.flags"
    file.write_text("\n".join(MAXTEXT.split()) + "\n# end\n")
    status, printed = check(capsys, "--jaxlib=0.10.2", "--jaxlib=0.12.0.1", str(file))
    assert status == 1
    assert ["flag", "0.10.2", "0.12.0.1"] in map(str.split, printed.splitlines())
    assert "(and a rest)" in printed
    (works,) = (line for line in printed.splitlines() if line.startswith("works with all of them: "))
    fixed = shlex.split(works.partition(": ")[2])[0].partition("=")[2]
    assert "graph_level" not in fixed
    assert check(capsys, "--jaxlib=all", fixed)[0] == 0


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("--xla_allow_excess_precision", 0),  # B07
        ("--xla_gpu_graph_min_graph_size", 1),  # B07
        ("--xla_gpu_enable_triton_gemm-false", 1),  # B05
        ("${XLA_BASE}", 1),  # B14
        ("--xla_dump_to=/d $NAME --xla_bogus", 0),  # B14
        ('"--xla_dump_to=/d"', 1),  # B15
        ("--xla_gpu_enable_command_buffer=''", 0),  # B16
        ("--xla_gpu_enable_command_buffer=+WHILE --xla_gpu_enable_command_buffer=", 0),  # B17
        ("--xla_tpu_x=1", 1),  # B22
        ("--xla_dump_to=/d \\\n--xla_bogus", 0),  # B25
        ("--xla_gpu_enable_command_buffer=FUSION,+WHILE", 1),  # B26
        ("--xla_gpu_enable_command_buffer=FUSION,CUBLAS,", 0),  # B26
        (f"{MODE}=NEVER_UPDATE", 1),  # B10
    ],
)
def test_exit_status(capsys: pytest.CaptureFixture[str], text: str, status: int) -> None:
    assert check(capsys, "--jaxlib=0.12", text)[0] == status
    assert check(capsys, "--jaxlib=0.12", "--", text)[0] == status


def test_fixed_text_alone(capsys: pytest.CaptureFixture[str]) -> None:  # B01, B10
    status, printed = check(capsys, "--fix", "--jaxlib=0.12", f"{MODE}=NEVER_UPDATE --xla_gpu_graph_level=0")
    assert (status, printed) == (0, f"{MODE}=SKIP_TEMP --xla_gpu_enable_command_buffer=\n")
    assert main(["check", "--fix", "--jaxlib=0.12", "--bogus\x1b"]) == 1
    wrong = "Unknown flag in XLA_FLAGS: --bogus\ufffd"
    assert capsys.readouterr() == (
        "",
        f"xla-flags: no correction is known for all of it with jaxlib 0.12.0.1: {wrong}\n",
    )


def test_tables_stay_small_whatever_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = check(capsys, "--jaxlib=0.12", "--xla_gpu_autotune_level=2 " * 600)
    assert (status, printed.count("\nxla_gpu_autotune_level ")) == (0, 500)
    assert "and 100 more" in printed
    printed = check(capsys, "--jaxlib=all", "--xla_gpu_autotune_level=2 " * 600)[1]
    assert "(and 100 more)" in printed
    assert len(check(capsys, "--jaxlib=0.12", "--xla_dump_to=" + "x" * 100_000)[1]) < 110_000


def test_every_installed_xla_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # B21
    install(tmp_path, "jaxlib", "0.12.0.1", "jaxlib/_jax.so")
    install(tmp_path, "jax-cuda13-pjrt", "0.10.2", "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
    install(tmp_path, "tensorflow", "2.20")
    context = metadata.DistributionFinder.Context(path=[str(tmp_path)])
    monkeypatch.setattr(
        metadata, "distributions", lambda: metadata.MetadataPathFinder.find_distributions(context)
    )
    monkeypatch.setattr(Catalog, "installed", staticmethod(lambda: Catalog.for_jaxlib("0.12.0.1")))
    status, printed = check(capsys, f"{MODE}=SKIP_TEMP")
    assert status == 1, "the plugin does not know the value, and ends the process"
    assert "jaxlib 0.12.0.1 (installed): goes on" in printed
    assert "jax-cuda13-pjrt 0.10.2, which reads XLA_FLAGS for itself: would end the process" in printed
    assert "tensorflow 2.20, which reads XLA_FLAGS for itself: unknown" in printed
    assert [each["outcome"] for each in as_json(capsys, f"{MODE}=SKIP_TEMP")["carriers"]] == [
        "usage_error",
        None,
    ]


@pytest.mark.parametrize(
    ("options", "status", "wanted"),
    [
        ({"xla_gpu_autotune_level": 2}, 0, "xla_gpu_autotune_level = 2"),
        ({"--xla_gpu_autotune_level": 2}, 1, "write: 'xla_gpu_autotune_level': 2"),
        ({"xla_gpu_triton_gemm_any": "yes"}, 1, "write: 'xla_gpu_triton_gemm_any': True"),
    ],
)
def test_options_of_one_function(
    capsys: pytest.CaptureFixture[str], options: dict[str, Any], status: int, wanted: str
) -> None:  # B32
    found, printed = check(capsys, "--jaxlib=0.12", f"--compiler-options={json.dumps(options)}")
    assert found == status
    assert wanted in printed
    entry = as_json(capsys, "--jaxlib=0.12", f"--compiler-options={json.dumps(options)}")["results"][0]
    assert entry["compiler_options"]["outcome"] == ("error" if status else "ok")


def test_options_do_not_matter_if_flags_fail(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = check(capsys, "--jaxlib=0.12", '--compiler-options={"xla_dump_to": "/d"}', "--bogus")
    assert status == 1
    assert "compiling" not in printed


def test_nothing_is_set(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    status, printed = check(capsys, "--jaxlib=0.12")
    assert status == 0
    assert printed.splitlines()[0] == "checking XLA_FLAGS, which is not set"
    assert as_json(capsys, "--jaxlib=0.12")["value"] is None


def test_bytes_that_are_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys, "--jaxlib=0.12", "--xla_dump_to=\udcff --\udcfe\x1b[31m")[0] == 1
