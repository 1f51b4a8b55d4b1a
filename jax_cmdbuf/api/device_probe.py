"""What JAX finds when it starts here, asked in a process of its own.

That process may hang, crash or be ended by XLA; this one only hears of it. Invariant: the caller's process
gets no backend, no changed environment and no exception from the other's fate. Run as a script, the module is
that other process: it prints one JSON object and imports nothing of this package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Device", "DeviceProbe", "probe_devices"]

DEFAULT_TIMEOUT_S = 120.0
_MARK = "jax_cmdbuf devices: "


@dataclass(frozen=True, slots=True)
class Device:
    """One device: JAX's platform ("cpu", "gpu"), its kind, and the platform's own version text."""

    id: int
    platform: str
    kind: str
    version: str


@dataclass(frozen=True, slots=True)
class DeviceProbe:
    """What came back.

    Attributes:
      devices: in JAX's order; empty when JAX did not start.
      plugin_messages: what JAX logged about its plugins, errors with their exception.
      error: why there are no devices: an exception, or how the process ended; "" when there are.
      driver_cuda: newest CUDA that the kernel driver supports, as 12080 for 12.8; 0: there is no driver.
      log: the end of what the process wrote to stderr.
    """

    devices: tuple[Device, ...]
    plugin_messages: tuple[str, ...]
    error: str
    driver_cuda: int
    log: str


def probe_devices(
    environ: Mapping[str, str] | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> DeviceProbe:
    """Starts JAX in a new process with this environment and lists its devices.

    Args:
      environ: that process's environment; None: this process's.
      timeout_s: seconds after which it is killed.
    """
    environ = {**(os.environ if environ is None else environ)}
    # The flags' verdict is asked for elsewhere, with reasons; here XLA shall do what it does.
    environ["JAX_CMDBUF_FLAGS"] = "off"
    # A look must not take the memory of a program that runs beside it.
    environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    try:
        done = subprocess.run(
            [sys.executable, str(Path(__file__))],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return DeviceProbe((), (), f"JAX did not start within {timeout_s:g} s", 0, "")
    log = done.stderr.decode(errors="replace").strip()[-4000:]
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith(_MARK)]
    if not lines:
        return DeviceProbe((), (), _ending(done.returncode, log), 0, log)
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(_MARK))
    devices = tuple(Device(**device) for device in found["devices"])
    return DeviceProbe(devices, tuple(found["plugin_messages"]), found["error"], found["driver_cuda"], log)


def _ending(status: int, log: str) -> str:
    fatal = next((line for line in log.splitlines() if line[:1] == "F" and "]" in line), "")
    why = fatal.partition("] ")[2] or (log.splitlines() or [""])[-1]
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"JAX's process ended with {how}" + (f": {why}" if why else "")


def _list_devices() -> dict[str, Any]:
    import logging
    import traceback

    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += ": " + "".join(traceback.format_exception_only(record.exc_info[1])).strip()
            messages.append(text)

    logging.getLogger("jax._src.xla_bridge").addHandler(Keep(logging.WARNING))
    import jax

    answer: dict[str, Any] = {"devices": [], "plugin_messages": messages, "error": ""}
    answer["driver_cuda"] = _driver_cuda()
    try:
        found = jax.local_devices()
    except (RuntimeError, ValueError, AssertionError) as error:
        text = str(error) or f"{type(error).__name__} while JAX started its backends"
        return {**answer, "error": text}
    devices = [
        {
            "id": device.id,
            "platform": device.platform,
            "kind": device.device_kind,
            "version": device.client.platform_version,
        }
        for device in found
    ]
    return {**answer, "devices": devices}


def _driver_cuda() -> int:
    """CUDA version of the kernel driver, as 12080 for 12.8; 0 without one."""
    import ctypes

    try:
        version = ctypes.c_int()
        return (
            version.value if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0 else 0
        )
    except (OSError, AttributeError):
        return 0


if __name__ == "__main__":
    # As a script its own folder comes first on the path, where our module names would hide others'.
    sys.path[:1] = []
    sys.stdout.write(_MARK + json.dumps(_list_devices()) + "\n")
