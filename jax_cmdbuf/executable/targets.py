"""The GPUs one can compile for without having one: ``GpuTargetConfigProto`` texts, shipped or from a file.

Mirrors ``xla/stream_executor/device_description.proto``. Invariant: a :class:`Target` has every field
without which XLA kills the process or fails on ordinary programs, so the worker never meets such a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from jax_cmdbuf.errors import InputError, TargetError
from jax_cmdbuf.executable.executable import DeviceDescription, Version
from jax_cmdbuf.executable.text_proto import Message, parse_text_proto, scalar

__all__ = ["DEFAULT_TARGET", "TARGETS", "Target", "load_target", "parse_target", "target_named"]

DEFAULT_TARGET = "h200"

# name on the command line -> file in data/targets, without its ending
TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "a100": "a100_sxm_80",
        "h100": "h100_sxm",
        "h200": "h200",
        "b200": "b200",
        "a10g": "a10g",
        "l4": "l4",
        "l40s": "l40s",
        "t4": "t4",
        "rtx": "rtx4090",
        "rtx4090": "rtx4090",
        "rtx5090": "rtx5090",
    }
)

# Field of gpu_device_info -> what XLA does without it.
_REQUIRED: Mapping[str, str] = MappingProxyType(
    {
        "threads_per_warp": "XLA divides by it and dies",
        "block_dim_limit_x": "XLA divides by it and dies",
        "core_count": "XLA would choose other kernels",
        "threads_per_block_limit": "sorts fail to compile",
        "shared_memory_per_block": "sorts fail to compile",
        "shared_memory_per_block_optin": "matrix multiplications fail to compile",
        "cuda_compute_capability": "XLA cannot tell the architecture",
    }
)
# The same for fields that XLA does without, at a price.
_ADVISED: Mapping[str, str] = MappingProxyType(
    {
        "runtime_version": "XLA records no command buffers without it",
        "driver_version": "XLA records no command buffers without it",
        "compile_time_toolkit_version": "XLA records no dynamic slice fusions without it",
    }
)
_INFO = "gpu_device_info"


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU to compile for.

    Attributes:
      name: how it was asked for: a shipped name, or the file's path.
      text: the ``GpuTargetConfigProto`` in text form.
      device: the facts of it that decide the grouping into command buffers.
      compute_capability: (major, minor).
      nvlinks: active NVLink links, 0 where the text has none; decides the collective kernels.
      warnings: what the text makes XLA do that a real GPU would not, one sentence each.
    """

    name: str
    text: str
    device: DeviceDescription
    compute_capability: tuple[int, int]
    nvlinks: int = 0
    warnings: tuple[str, ...] = ()


def load_target(name: str) -> Target:
    """The target of a shipped name (any case), or of a file with a target config in text form.

    Raises:
      TargetError: unknown name, unreadable file, or a text that XLA could not compile for.
    """
    stem = TARGETS.get(name.lower(), name.lower())
    shipped = resources.files("jax_cmdbuf.executable").joinpath("data", "targets", f"{stem}.txtpb")
    if stem in TARGETS.values() and shipped.is_file():
        return parse_target(shipped.read_text(encoding="utf-8"), name=name.lower())
    path = Path(name)
    if not path.exists():
        raise TargetError(
            f"unknown target {name!r}: use one of {', '.join(TARGETS)}, "
            "or the path of a GpuTargetConfigProto text"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise TargetError(f"cannot read target {name}: {reason}") from error
    return parse_target(text, name=name)


def target_named(device: str) -> str | None:
    """The shipped target of a GPU model, as JAX's ``device_kind`` has it ("NVIDIA H200"); None: none."""
    return next((name for name in TARGETS if load_target(name).device.name == device), None)


def parse_target(text: str, *, name: str) -> Target:
    """Checks a target config text and reads what this package needs of it.

    Raises:
      TargetError: not a text proto, or a field is missing; the sentence names the line or the fields.
    """
    try:
        message = parse_text_proto(text)
    except InputError as error:
        raise TargetError(f"target {name} is not a text proto: {error}") from error
    missing = [field for field in _REQUIRED if not _present(message, field)]
    if missing:
        fields = ", ".join(f"{_INFO}.{field}" for field in missing)
        raise TargetError(f"target {name} lacks {fields}: without {missing[0]} {_REQUIRED[missing[0]]}")
    capability = f"{_INFO}.cuda_compute_capability"
    return Target(
        name,
        text,
        device=DeviceDescription(
            name=str(scalar(message, f"{_INFO}.name") or scalar(message, "device_description_str") or name),
            runtime_version=_version(message, "runtime_version", name),
            driver_version=_version(message, "driver_version", name),
            compile_time_toolkit_version=_version(message, "compile_time_toolkit_version", name),
            source=f"target {name}",
        ),
        compute_capability=(
            _integer(message, f"{capability}.major"),
            _integer(message, f"{capability}.minor"),
        ),
        nvlinks=_integer(message, f"{_INFO}.device_interconnect_info.active_links"),
        warnings=tuple(
            f"target {name} lacks {_INFO}.{field}: {effect}"
            for field, effect in _ADVISED.items()
            if not _present(message, field)
        ),
    )


def _present(message: Message, field: str) -> bool:
    if field == "cuda_compute_capability":
        return bool(scalar(message, f"{_INFO}.{field}.major"))
    # A zero counts as missing: it is what XLA reads for a field that is not there.
    return scalar(message, f"{_INFO}.{field}") not in (None, 0, "", False)


def _integer(message: Message, path: str) -> int:
    value = scalar(message, path)
    return value if isinstance(value, int) else 0


def _version(message: Message, field: str, name: str) -> Version:
    value = scalar(message, f"{_INFO}.{field}")
    if value is None:
        return (0, 0, 0)
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?", str(value))
    if match is None:
        raise TargetError(f"target {name}: {_INFO}.{field} is {value!r}, not a version such as 13.0.0")
    major, minor, patch = match.groups("0")
    return int(major), int(minor), int(patch)
