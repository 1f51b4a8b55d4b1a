"""Facts about this installation that decide whether XLA's update modes work here, each with what to do.

Invariant: looking changes nothing and starts nothing in this process; every check is made whatever the
others found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Any

import jax

from jax_cmdbuf.api.carriers import Carrier, installed_carriers
from jax_cmdbuf.api.defaults import default_update_mode
from jax_cmdbuf.api.device_probe import DeviceProbe, probe_devices
from jax_cmdbuf.api.flag_guard import UPDATE_MODE_FLAG, FlagPolicy, check_flags
from jax_cmdbuf.errors import InputError, MissingDependencyError
from jax_cmdbuf.executable.toolchain import find_toolchain
from xla_flags.errors import XlaFlagsError
from xla_flags.parser import parse
from xla_flags.schema import Catalog

__all__ = ["Finding", "Health", "Report", "examine"]

# Below this CUDA version of the driver XLA drops every command buffer (``command_buffer_conversion_pass``).
OLDEST_DRIVER_CUDA = 12030
_MODE = "SKIP_PROFILED"


class Health(StrEnum):
    """What a finding means."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    PROBLEM = "problem"
    """Something will not work as asked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact.

    Attributes:
      topic: what was looked at.
      health: what it means.
      found: what is there.
      advice: what to do; "" where there is nothing to do.
      stops: whether SKIP_PROFILED cannot be effective because of it.
    """

    topic: str
    health: Health
    found: str
    advice: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in the order in which they should be read.

    Attributes:
      findings: the facts.
      is_effective: whether XLA would run a program here with SKIP_PROFILED, if asked to.
    """

    findings: tuple[Finding, ...]

    @property
    def is_effective(self) -> bool:
        """Nothing found stops it."""
        return not any(finding.stops for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """``{"skip_profiled_effective": ..., "findings": [...]}``."""
        findings = [asdict(finding) for finding in self.findings]
        return {"skip_profiled_effective": self.is_effective, "findings": findings}


def examine(environ: Mapping[str, str] | None = None, devices: DeviceProbe | None = None) -> Report:
    """Looks at everything.

    Args:
      environ: the environment that counts; None: this process's.
      devices: what JAX finds; None: it is started in a process of its own to see.
    """
    environ = dict(os.environ if environ is None else environ)
    devices = probe_devices(environ) if devices is None else devices
    carriers = installed_carriers()
    findings = [
        *_versions(carriers, environ),
        *_entries(devices),
        *_modes(carriers),
        *_flags(carriers, environ),
        *_default_mode(environ),
        *_allocator(environ),
        *_devices(devices, environ),
        *_deviceless(environ),
    ]
    return Report(tuple(findings))


def _versions(carriers: tuple[Carrier, ...], environ: Mapping[str, str]) -> Iterator[Finding]:
    jaxlib = next((carrier.version for carrier in carriers if carrier.distribution == "jaxlib"), "")
    found = f"jax {jax.__version__}, jaxlib {jaxlib}"
    if _release(jax.__version__) != _release(jaxlib):
        advice = f"pip install 'jax=={jaxlib}' or 'jaxlib=={jax.__version__}'"
        yield Finding("versions", Health.PROBLEM, f"{found}: not of one release", advice)
    else:
        yield Finding("versions", Health.OK, found)
    plugins = [carrier for carrier in carriers if carrier.platforms]
    for plugin in plugins:
        if _release(plugin.version) == _release(jaxlib):
            yield Finding("GPU plugin", Health.OK, plugin.title)
            continue
        advice = f"pip install '{plugin.distribution}=={jaxlib}'; until then JAX runs on the CPU"
        text = f"{plugin.title} does not fit jaxlib {jaxlib}"
        yield Finding("GPU plugin", Health.PROBLEM, text, advice, stops=True)
    if not plugins:
        advice = "pip install 'jax[cuda13]' on the machine with the GPU"
        yield Finding("GPU plugin", Health.NOTE, "none is installed", advice, stops=True)
    elif not any(plugin.is_used(environ) for plugin in plugins):
        text = f"JAX_PLATFORMS={environ['JAX_PLATFORMS']} leaves the GPU plugin out"
        yield Finding("GPU plugin", Health.NOTE, text, "unset JAX_PLATFORMS to use the GPU", stops=True)


def _release(version: str) -> list[str]:
    return version.split(".")[:2]


def _entries(devices: DeviceProbe) -> Iterator[Finding]:
    values = sorted({entry.value for entry in entry_points(group="jax_plugins")})
    if "jax_cmdbuf.plugin" in values:
        yield Finding("jax_plugins", Health.OK, ", ".join(values))
    else:
        text = f"jax_cmdbuf.plugin is not among them ({', '.join(values) or 'there are none'})"
        advice = "XLA_FLAGS is not checked before XLA reads it; pip install jax-cmdbuf"
        yield Finding("jax_plugins", Health.NOTE, text, advice)
    for message in devices.plugin_messages:
        yield Finding("jax_plugins", Health.PROBLEM, message, "JAX goes on without that plugin")


def _modes(carriers: tuple[Carrier, ...]) -> Iterator[Finding]:
    for carrier in carriers:
        catalog = _catalog(carrier)
        flag = None if catalog is None else catalog.flags.get(UPDATE_MODE_FLAG)
        modes = tuple(flag.enum.numbers) if flag is not None and flag.enum is not None else ()
        text = f"{carrier.title}: {', '.join(modes) or 'no update modes'}"
        if _MODE in modes:
            yield Finding("update modes", Health.OK, text)
        else:
            advice = f"jaxlib 0.11 and later have {_MODE}; here jax_cmdbuf can only simulate it"
            yield Finding("update modes", Health.NOTE, text, advice, stops=True)


def _catalog(carrier: Carrier) -> Catalog | None:
    try:
        return carrier.catalog()
    except XlaFlagsError:
        return None


def _flags(carriers: tuple[Carrier, ...], environ: Mapping[str, str]) -> Iterator[Finding]:
    text = environ.get("XLA_FLAGS", "")
    catalogs = {
        carrier.title: catalog
        for carrier in carriers
        if carrier.is_used(environ) and (catalog := _catalog(carrier)) is not None
    }
    check = check_flags(text, catalogs, FlagPolicy.OFF)
    for severity, line in check.lines:
        refused = severity == "error"
        advice = "JAX_CMDBUF_FLAGS=repair would repair it at start" if refused else ""
        yield Finding("XLA_FLAGS", Health.PROBLEM, line, advice, stops=refused)
    if not check.lines:
        yield Finding("XLA_FLAGS", Health.OK, f"accepted: {text}" if text else "not set")
    if not check.is_accepted:
        return
    for title, catalog in catalogs.items():
        options = parse(text, catalog).debug_options
        if not options.xla_gpu_enable_command_buffer:
            advice = "leave xla_gpu_enable_command_buffer out to have the default list"
            said = f"{title}: command buffers are switched off"
            yield Finding("XLA_FLAGS", Health.PROBLEM, said, advice, stops=True)


def _default_mode(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        mode = default_update_mode(environ)
    except InputError as error:
        yield Finding("default mode", Health.PROBLEM, str(error), "unset JAX_CMDBUF_MODE or correct it")
        return
    advice = ""
    if mode != _MODE:
        advice = (
            f"for {_MODE}: XLA_FLAGS=--{UPDATE_MODE_FLAG}={_MODE}, which also chooses XLA's VMM allocator"
        )
    yield Finding("default mode", Health.OK if mode == _MODE else Health.NOTE, str(mode), advice)


# What jaxlib's generate_pjrt_gpu_plugin_options takes.
_ALLOCATORS = ("default", "platform", "bfc", "cuda_async", "vmm", "address")
_FRACTION, _OLD_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"


def _allocator(environ: Mapping[str, str]) -> Iterator[Finding]:
    chosen = environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower()
    if chosen and chosen not in _ALLOCATORS:
        text = f"XLA_PYTHON_CLIENT_ALLOCATOR={chosen} is none of {', '.join(_ALLOCATORS)}"
        yield Finding(
            "allocator", Health.PROBLEM, text, "the GPU plugin refuses to start: unset it", stops=True
        )
    elif chosen and chosen not in ("default", "vmm"):
        text = f"XLA_PYTHON_CLIENT_ALLOCATOR={chosen}"
        advice = (
            f"remapping needs the VMM allocator: {_MODE} in XLA_FLAGS overrides this variable; a mode set "
            "for one function does not"
        )
        yield Finding("allocator", Health.NOTE, text, advice)
    else:
        yield Finding(
            "allocator", Health.OK, f"XLA_PYTHON_CLIENT_ALLOCATOR={chosen}" if chosen else "default"
        )
    if environ.get(_FRACTION) and environ.get(_OLD_FRACTION):
        text = f"{_FRACTION} and {_OLD_FRACTION} are both set"
        advice = f"the GPU plugin refuses to start: unset {_OLD_FRACTION}"
        yield Finding("allocator", Health.PROBLEM, text, advice, stops=True)
    elif environ.get(_OLD_FRACTION):
        yield Finding("allocator", Health.NOTE, f"{_OLD_FRACTION} is deprecated", f"use {_FRACTION}")
    for name in (_FRACTION, _OLD_FRACTION):
        if (value := environ.get(name)) and not _is_number(value):
            text = f"{name}={value} is no number"
            yield Finding("allocator", Health.PROBLEM, text, "the GPU plugin refuses to start", stops=True)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _devices(devices: DeviceProbe, environ: Mapping[str, str]) -> Iterator[Finding]:
    if devices.error:
        yield Finding("devices", Health.PROBLEM, devices.error, "see the findings above", stops=True)
    gpus = [device for device in devices.devices if device.platform == "gpu"]
    for device in devices.devices:
        text = f"{device.id}: {device.kind} ({device.platform})"
        yield Finding("devices", Health.OK, text)
    if devices.devices and not gpus:
        text = "JAX has no GPU here"
        advice = "decorated functions run on the CPU, and what a GPU would do is simulated"
        yield Finding("devices", Health.NOTE, text, advice, stops=True)
    version = f"{devices.driver_cuda // 1000}.{devices.driver_cuda % 1000 // 10}"
    if not devices.driver_cuda:
        advice = "install NVIDIA's driver" if environ.get("JAX_PLATFORMS", "") in ("cuda", "gpu") else ""
        yield Finding("driver", Health.NOTE, "no NVIDIA driver", advice, stops=True)
    elif devices.driver_cuda < OLDEST_DRIVER_CUDA:
        text = f"the driver supports CUDA {version}: XLA makes no command buffers below 12.3"
        yield Finding("driver", Health.PROBLEM, text, "update NVIDIA's driver", stops=True)
    else:
        yield Finding("driver", Health.OK, f"supports CUDA {version}")


def _deviceless(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        found = find_toolchain(environ)
    except MissingDependencyError as error:
        yield Finding("plans without a GPU", Health.NOTE, str(error), "needed by `jax-cmdbuf plan` only")
    else:
        text = f"{found.plugin} {found.plugin_version}, {found.ptxas}, {found.libdevice}"
        yield Finding("plans without a GPU", Health.OK, text)
