from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jax_cmdbuf.api import doctor
from jax_cmdbuf.api.carriers import Carrier
from jax_cmdbuf.api.device_probe import Device, DeviceProbe
from jax_cmdbuf.api.doctor import Finding, Report, examine

VERSION = "0.12.0.1"
CUDA = Carrier("jax-cuda13-pjrt", VERSION, ("cuda", "gpu"), ("jax_plugins.xla_cuda13", "xla_cuda_plugin.so"))
H200 = DeviceProbe((Device(0, "gpu", "NVIDIA H200", "cuda 13000"),), (), "", 13000, "")


@pytest.fixture
def gpu_machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Examines a machine with a GPU on which everything is as it should be, but for what is given."""

    def look(
        environ: dict[str, str] | None = None,
        *,
        jax: str = VERSION,
        jaxlib: str = VERSION,
        plugin: Carrier | None = CUDA,
        devices: DeviceProbe = H200,
    ) -> Report:
        carriers = tuple(filter(None, (Carrier("jaxlib", jaxlib), plugin)))
        monkeypatch.setattr(doctor.jax, "__version__", jax)
        monkeypatch.setattr(doctor, "installed_carriers", lambda: carriers)
        return examine(environ or {}, devices)

    return look


def stops(report: Report) -> list[tuple[str, str]]:
    return [(finding.topic, finding.found) for finding in report.findings if finding.stops]


def find(report: Report, topic: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.topic == topic]


def test_where_all_is_well_skip_profiled_is_effective(gpu_machine: Callable[..., Report]) -> None:
    report = gpu_machine()
    assert stops(report) == []
    assert report.is_effective
    assert find(report, "driver")[0].found == "supports CUDA 13.0"
    assert "xla_gpu_command_buffer_update_mode=SKIP_PROFILED" in find(report, "default mode")[0].advice


def test_a_mode_that_is_asked_for_is_ok(gpu_machine: Callable[..., Report]) -> None:
    report = gpu_machine({"XLA_FLAGS": "--xla_gpu_command_buffer_update_mode=SKIP_PROFILED"})
    assert report.is_effective
    assert find(report, "default mode") == [Finding("default mode", doctor.Health.OK, "SKIP_PROFILED")]


OLD_DRIVER = H200.__class__(H200.devices, (), "", 12020, "")
NO_GPU = DeviceProbe((Device(0, "cpu", "cpu", "cpu"),), ("Jax plugin configuration error: x",), "", 0, "")
CRASHED = DeviceProbe((), (), "JAX's process ended with signal 11", 13000, "")


@pytest.mark.parametrize(
    ("machine", "topic", "found"),
    [
        ({"plugin": None}, "GPU plugin", "none is installed"),
        ({"plugin": CUDA._replace(version="0.11.2")}, "GPU plugin", "0.11.2 does not fit jaxlib 0.12.0.1"),
        ({"environ": {"JAX_PLATFORMS": "cpu"}}, "GPU plugin", "JAX_PLATFORMS=cpu leaves the GPU plugin out"),
        (
            {"jax": "0.10.2", "jaxlib": "0.10.2", "plugin": CUDA._replace(version="0.10.2")},
            "update modes",
            "jaxlib 0.10.2: ALWAYS_UPDATE, NEVER_UPDATE",
        ),
        ({"environ": {"XLA_FLAGS": "--xla_gpu_graph_level=0"}}, "XLA_FLAGS", "would end this process"),
        (
            {"environ": {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}},
            "XLA_FLAGS",
            "command buffers are switched off",
        ),
        ({"environ": {"XLA_PYTHON_CLIENT_ALLOCATOR": "bcf"}}, "allocator", "=bcf is none of default"),
        (
            {"environ": {"XLA_CLIENT_MEM_FRACTION": ".5", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}},
            "allocator",
            "are both set",
        ),
        ({"environ": {"XLA_CLIENT_MEM_FRACTION": "half"}}, "allocator", "=half is no number"),
        ({"devices": OLD_DRIVER}, "driver", "CUDA 12.2: XLA makes no command buffers"),
        ({"devices": NO_GPU}, "devices", "JAX has no GPU here"),
        ({"devices": NO_GPU}, "driver", "no NVIDIA driver"),
        ({"devices": CRASHED}, "devices", "ended with signal 11"),
    ],
)
def test_what_stops_it_is_named(
    gpu_machine: Callable[..., Report], machine: dict[str, object], topic: str, found: str
) -> None:
    report = gpu_machine(**machine)
    assert not report.is_effective
    assert any(where == topic and found in text for where, text in stops(report)), stops(report)


@pytest.mark.parametrize(
    ("machine", "topic", "found"),
    [
        ({"jax": "0.11.2"}, "versions", "jax 0.11.2, jaxlib 0.12.0.1: not of one release"),
        ({"environ": {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}}, "allocator", "=platform"),
        ({"environ": {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}}, "allocator", "is deprecated"),
        ({"environ": {"JAX_CMDBUF_MODE": "skip"}}, "default mode", "JAX_CMDBUF_MODE is 'skip'"),
        ({"environ": {"XLA_FLAGS": "--xla_gpu_autotune_level=0 # x --xla_y"}}, "XLA_FLAGS", "stops reading"),
    ],
)
def test_what_is_odd_but_works_stops_nothing(
    gpu_machine: Callable[..., Report], machine: dict[str, object], topic: str, found: str
) -> None:
    report = gpu_machine(**machine)
    assert report.is_effective
    assert any(found in finding.found and finding.health != "ok" for finding in find(report, topic))


def test_a_plugins_error_is_shown(gpu_machine: Callable[..., Report]) -> None:
    report = gpu_machine(devices=NO_GPU)
    assert any(
        "Jax plugin configuration error: x" in finding.found for finding in find(report, "jax_plugins")
    )


def test_the_report_is_json(gpu_machine: Callable[..., Report]) -> None:
    data = json.loads(json.dumps(gpu_machine().to_json()))
    assert data["skip_profiled_effective"] is True
    assert {"topic", "health", "found", "advice", "stops"} == data["findings"][0].keys()
