"""Which thunk may be recorded into a command buffer, and if not, why.

Mirrors the ``IsConvertible`` family of ``xla/backends/gpu/runtime/command_buffer_conversion_pass.cc``.
Invariant: an answer depends on the thunk, its nested thunks and the configuration only, never on its
neighbours; async regions are the business of ``async_regions.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from jax_cmdbuf.executable.async_regions import find_region
from jax_cmdbuf.executable.conversion_rules import ConversionRules, rules_for
from jax_cmdbuf.executable.executable import DeviceDescription, Executable, Version
from jax_cmdbuf.executable.thunks import (
    CollectiveInfo,
    CopyDirection,
    CopyInfo,
    CustomCallInfo,
    DynamicSliceFusionInfo,
    Thunk,
    WhileInfo,
)

__all__ = ["Configuration", "LeftOutReason", "Refusal", "refusal", "refusal_of_list"]

_CUDA_12_3: Version = (12, 3, 0)
_CUDA_12_9: Version = (12, 9, 0)
_MAX_ONE_SHOT_GROUP = 8
_ENABLE = "xla_gpu_enable_command_buffer"
_FILTER = "xla_gpu_enable_collectives_command_buffer_filter"
# Collectives that the filter never excludes.
_UNFILTERED = frozenset({"kSend", "kRecv", "kGroup", "kCollectiveKernel"})
_PLATFORM_DROPS: Mapping[str, frozenset[str] | None] = {
    "CUDA": frozenset(),
    "ROCM": frozenset({"CONDITIONAL", "WHILE"}),
    "SYCL": None,
}


class LeftOutReason(Enum):
    """Why a thunk is in no command buffer; the value is a sentence part for people."""

    KIND_NEVER_RECORDED = "its kind is never recorded"
    TYPE_NOT_ENABLED = "its command type is not enabled"
    DRIVER_TOO_OLD = "the CUDA driver or runtime is too old"
    PLATFORM = "the platform cannot record it"
    COPY_NOT_DEVICE_TO_DEVICE = "only device-to-device copies are recorded"
    FFI_NOT_COMPATIBLE = "its FFI handler does not declare itself command-buffer compatible"
    FFI_UNKNOWN = "it is not known whether its FFI handler is command-buffer compatible"
    COLLECTIVE_FILTERED = "the collectives filter leaves it out"
    RAGGED_ALL_TO_ALL = "this ragged all-to-all cannot be recorded"
    DYNAMIC_SLICE_TOOLKIT = "dynamic slice fusions need CUDA 12.9 everywhere"
    DYNAMIC_SLICE_VERIFIED = "its offsets are verified at run time"
    LOOP_DEPENDENT_SLICE = "its body has a dynamic slice fusion that moves with the loop"
    NESTED_INELIGIBLE = "something inside it cannot be recorded"
    ASYNC_UNCLOSED = "its async region does not close in the same list"
    ASYNC_INELIGIBLE = "something in its async region cannot be recorded"
    ASYNC_STREAM_OPEN = "its stream is in use by an async operation left outside"
    ASYNC_DONE = "the start of its async operation is outside"
    TOO_FEW = "its group is smaller than the minimum"
    PARENT_LEFT_OUT = "it is inside a thunk that is left outside"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a thunk cannot be recorded.

    Attributes:
      reason: the class of reason.
      detail: a clause with the names and numbers of the case.
    """

    reason: LeftOutReason
    detail: str


@dataclass(frozen=True)
class Configuration:
    """Everything besides the thunks that grouping depends on.

    Attributes:
      enabled: command types of ``xla_gpu_enable_command_buffer``, before any device check.
      collectives_filter: names of ``xla_gpu_enable_collectives_command_buffer_filter``; an empty one filters
        nothing, as does its absence before jaxlib 0.11.
      min_size: smallest group that becomes a command buffer, at least 1.
      unroll_loops: ``xla_gpu_command_buffer_unroll_loops``.
      partition_size: devices that share a fast interconnect, 0 if unknown.
      device: versions of driver, runtime and toolkit.
      ffi_traits: FFI target -> whether it is command-buffer compatible.
      rules: the release's row.
    """

    enabled: frozenset[str]
    collectives_filter: frozenset[str]
    min_size: int
    unroll_loops: bool
    partition_size: int
    device: DeviceDescription
    ffi_traits: Mapping[str, bool]
    rules: ConversionRules

    @classmethod
    def of(
        cls, executable: Executable, device: DeviceDescription, ffi_traits: Mapping[str, bool]
    ) -> Configuration:
        """The configuration of an executable on a device."""
        rules = rules_for(executable.jaxlib)

        def names(option: str) -> frozenset[str]:
            value = executable.debug_options.get(option, ())
            return frozenset(map(str, value)) if isinstance(value, (tuple, list, frozenset)) else frozenset()

        size = executable.debug_options.get("xla_gpu_graph_min_graph_size", 0)
        return cls(
            enabled=names(_ENABLE),
            collectives_filter=names(_FILTER),
            min_size=max(1, size) if isinstance(size, int) else 1,
            unroll_loops=bool(executable.debug_options.get("xla_gpu_command_buffer_unroll_loops", False)),
            partition_size=executable.partition_size,
            device=device,
            ffi_traits=ffi_traits,
            rules=rules,
        )

    def refusal_of_type(self, name: str) -> Refusal | None:
        """Why a command type is not enabled, or None."""
        if name not in self.enabled:
            return Refusal(LeftOutReason.TYPE_NOT_ENABLED, f"{name} is not in {_ENABLE}")
        dropped = _PLATFORM_DROPS.get(self.device.platform, frozenset())
        if dropped is None or name in dropped:
            return Refusal(LeftOutReason.PLATFORM, f"{self.device.platform} cannot record {name}")
        if self.device.platform != "CUDA":
            return None
        version = min(self.device.runtime_version, self.device.driver_version)
        affected = self.rules.types_needing_cuda_12_3
        if version < _CUDA_12_3 and (affected is None or name in affected):
            return Refusal(
                LeftOutReason.DRIVER_TOO_OLD,
                f"{name} needs CUDA 12.3, driver and runtime give {_text(version)}",
            )
        return None


def refusal(thunk: Thunk, config: Configuration) -> Refusal | None:
    """Why a thunk cannot be recorded, looking into its nested lists; None: it can.

    An async start is judged by its nested list alone; an async done is always fine: their region decides.
    """
    if thunk.kind == "kAsyncDone":
        return None
    if thunk.kind != "kAsyncStart":
        name = config.rules.kind_types.get(thunk.kind)
        if name is None:
            return Refusal(LeftOutReason.KIND_NEVER_RECORDED, f"{thunk.kind} is never recorded")
        own = config.refusal_of_type(name) or _refusal_of_kind(thunk, config)
        if own is not None:
            return own
    for thunks in thunk.nested:
        inner = refusal_of_list(thunks, config)
        if inner is not None:
            return Refusal(LeftOutReason.NESTED_INELIGIBLE, inner.detail)
    return None


def refusal_of_list(thunks: Sequence[Thunk], config: Configuration) -> Refusal | None:
    """Why a nested list cannot be recorded as a whole; None: it can."""
    position = 0
    while position < len(thunks):
        thunk = thunks[position]
        length = 1
        found = refusal(thunk, config)
        if found is None and thunk.kind == "kAsyncStart":
            length = find_region(thunks, position)
            found = refusal_of_region(thunks[position : position + length], config)
        elif thunk.kind == "kAsyncDone" and config.rules.lone_done_fails_list:
            found = Refusal(LeftOutReason.ASYNC_DONE, "its start is not in the same list")
        if found is not None:
            return Refusal(found.reason, f"{label(thunk)} inside: {found.detail}")
        position += length
    return None


def refusal_of_region(region: Sequence[Thunk], config: Configuration) -> Refusal | None:
    """Why an async region cannot be taken as a whole; an empty one is a region that does not close."""
    if not region:
        return Refusal(LeftOutReason.ASYNC_UNCLOSED, "its async region does not close in the same list")
    for thunk in region:
        found = refusal(thunk, config)
        if found is not None:
            return Refusal(LeftOutReason.ASYNC_INELIGIBLE, f"{label(thunk)} in its region: {found.detail}")
    return None


def label(thunk: Thunk) -> str:
    """How details name a thunk."""
    return f"thunk {thunk.id} ({thunk.kind})"


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def _refusal_of_kind(thunk: Thunk, config: Configuration) -> Refusal | None:
    check = _CHECKS.get(thunk.kind)
    found = check(thunk, config) if check is not None else None
    if found is None and isinstance(thunk.info, CollectiveInfo) and thunk.kind not in _UNFILTERED:
        return _refusal_by_filter(thunk.info, config)
    return found


def _refusal_by_filter(info: CollectiveInfo, config: Configuration) -> Refusal | None:
    names = config.collectives_filter
    if not names or "ALLCOLLECTIVES" in names or info.op in names:
        return None
    return Refusal(LeftOutReason.COLLECTIVE_FILTERED, f"{info.op} is not in {_FILTER}")


def _check_copy(thunk: Thunk, config: Configuration) -> Refusal | None:
    if isinstance(thunk.info, CopyInfo) and thunk.info.direction is CopyDirection.DEVICE_TO_DEVICE:
        return None
    direction = thunk.info.direction.value if isinstance(thunk.info, CopyInfo) else "unspecified"
    return Refusal(LeftOutReason.COPY_NOT_DEVICE_TO_DEVICE, f"it copies {direction}")


def _check_custom_call(thunk: Thunk, config: Configuration) -> Refusal | None:
    target = thunk.info.target_name if isinstance(thunk.info, CustomCallInfo) else ""
    compatible = config.ffi_traits.get(target)
    if compatible:
        return None
    if compatible is None:
        return Refusal(
            LeftOutReason.FFI_UNKNOWN, f"FFI target {target} is in no table; taken as incompatible"
        )
    return Refusal(LeftOutReason.FFI_NOT_COMPATIBLE, f"FFI target {target} is not command-buffer compatible")


def _check_while(thunk: Thunk, config: Configuration) -> Refusal | None:
    moving = next((one for one in _outside_slices(thunk.nested[1:]) if _is_loop_dependent(one)), None)
    if moving is None:
        return None
    trip_count = thunk.info.trip_count if isinstance(thunk.info, WhileInfo) else None
    if config.unroll_loops and trip_count is not None:
        return None
    missing = "its trip count is unknown" if config.unroll_loops else "loops are not unrolled"
    return Refusal(LeftOutReason.LOOP_DEPENDENT_SLICE, f"{label(moving)} moves with the loop, and {missing}")


def _outside_slices(lists: Sequence[Sequence[Thunk]]) -> list[Thunk]:
    """Every thunk at any depth, but not what dynamic slice fusions embed."""
    found = []
    for thunk in (one for thunks in lists for one in thunks):
        found.append(thunk)
        if not isinstance(thunk.info, DynamicSliceFusionInfo):
            found += _outside_slices(thunk.nested)
    return found


def _is_loop_dependent(thunk: Thunk) -> bool:
    return isinstance(thunk.info, DynamicSliceFusionInfo) and thunk.info.loop_dependent


def _check_dynamic_slice_fusion(thunk: Thunk, config: Configuration) -> Refusal | None:
    device = config.device
    version = min(device.runtime_version, device.driver_version, device.compile_time_toolkit_version)
    if version < _CUDA_12_9:
        return Refusal(
            LeftOutReason.DYNAMIC_SLICE_TOOLKIT,
            f"runtime, driver and toolkit give CUDA {_text(version)} < 12.9",
        )
    if isinstance(thunk.info, DynamicSliceFusionInfo) and thunk.info.verify_offsets:
        return Refusal(LeftOutReason.DYNAMIC_SLICE_VERIFIED, "its offsets are verified at run time")
    return None


def _check_ragged_all_to_all(thunk: Thunk, config: Configuration) -> Refusal | None:
    info = thunk.info
    if not isinstance(info, CollectiveInfo):
        return None
    size = len(info.replica_groups[0]) if info.replica_groups else 0
    problem = ""
    if not info.one_shot_kernel_enabled:
        problem = "its one-shot kernel is not enabled"
    elif size > _MAX_ONE_SHOT_GROUP:
        problem = f"its group of {size} devices exceeds {_MAX_ONE_SHOT_GROUP}"
    elif any(bits % 8 for bits in info.element_bits):
        problem = "its elements are no whole number of bytes"
    elif config.partition_size > 0 and any(
        len({device // config.partition_size for device in group}) > 1 for group in info.replica_groups
    ):
        problem = f"a group spans several domains of {config.partition_size} devices"
    return Refusal(LeftOutReason.RAGGED_ALL_TO_ALL, problem) if problem else None


_CHECKS: Mapping[str, Callable[[Thunk, Configuration], Refusal | None]] = {
    "kCopy": _check_copy,
    "kCustomCall": _check_custom_call,
    "kWhile": _check_while,
    "kDynamicSliceFusion": _check_dynamic_slice_fusion,
    "kRaggedAllToAll": _check_ragged_all_to_all,
}
