"""How flags read their values where their type alone does not say, which no jaxlib reports about itself.

From reading xla/debug_options_flags.cc. Only what builds catalogs uses this; parsing finds the answer in a
catalog. Invariant: one row per exception, and every exception is a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xla_flags.schema import FlagKind

Kind = FlagKind


@dataclass(frozen=True, slots=True)
class FieldShape:
    """What is known of the field a flag writes: the proto type's word, its shape, and its enum's members."""

    type: str
    repeated: bool
    is_map: bool
    enum: str = ""
    members: tuple[str, ...] = ()


# Enums that flags spell in words: full name -> kind, and word -> member.
_WORDS: Mapping[str, tuple[FlagKind, Mapping[str, str]]] = {
    "xla.DebugOptions.CollectivesMode": (
        Kind.WORD_ANY_CASE,
        {
            "private": "COLLECTIVES_PRIVATE_MEMORY",
            "symmetric": "COLLECTIVES_SYMMETRIC_MEMORY",
            "peer": "COLLECTIVES_PEER_MEMORY",
        },
    ),
    "xla.DebugOptions.CollectivePipeliningMode": (
        Kind.WORD_ANY_CASE,
        {
            "default": "COLLECTIVE_PIPELINING_MODE_DEFAULT",
            "off": "COLLECTIVE_PIPELINING_MODE_OFF",
            "on": "COLLECTIVE_PIPELINING_MODE_ON",
            "explicit": "COLLECTIVE_PIPELINING_MODE_EXPLICIT",
        },
    ),
    "xla.DebugOptions.DeterministicOpsTritonMode": (
        Kind.WORD_ANY_CASE,
        {
            "off": "DETERMINISTIC_OPS_TRITON_MODE_OFF",
            "unchecked": "DETERMINISTIC_OPS_TRITON_MODE_UNCHECKED",
        },
    ),
    "xla.DebugOptions.DetectionMode": (
        Kind.WORD,
        {
            "none": "DETECTION_MODE_NONE",
            "warning": "DETECTION_MODE_WARNING",
            "fail": "DETECTION_MODE_FAIL",
            "dump": "DETECTION_MODE_DUMP",
        },
    ),
}

# Enums whose members may be written without this.
_PREFIXES = {
    "xla.DebugOptions.CollectiveKernelType": "COLLECTIVE_KERNEL_",
    "xla.DebugOptions.CpuOptPreset": "CPU_OPT_PRESET_",
    "xla.DebugOptions.LibraryFusionType": "LIBRARY_FUSION_TYPE_",
}

# Flag -> kind and what else the catalog's row says.
_ROWS: Mapping[str, tuple[FlagKind, Mapping[str, Any]]] = {
    "xla_autotuner_preferred_backend": (
        Kind.ENUM_ANY_CASE,
        {"words": {"": "UNSPECIFIED_BACKEND", "none": "UNSPECIFIED_BACKEND"}},
    ),
    "xla_cpu_experimental_xnn_graph_fusion_mode": (Kind.ENUM_ANY_CASE, {}),
    "xla_cpu_opt_preset": (Kind.ENUM_ANY_CASE, {}),
    "xla_gpu_enable_while_loop_unrolling": (Kind.ENUM_ANY_CASE, {}),
    "xla_cpu_max_isa": (Kind.UPPER_STRING, {}),
    "xla_gpu_disable_async_collectives": (Kind.ASYNC_COLLECTIVES, {}),
    "xla_disable_hlo_passes": (Kind.PASS_LIST, {}),
    "xla_enable_hlo_passes_only": (Kind.PASS_LIST, {}),
    "xla_gpu_hlo_custom_call_allowlist": (Kind.TRIMMED_LIST, {}),
    "xla_gpu_llvm_ir_file": (Kind.WHOLE_LIST, {}),
    "xla_gpu_ptx_compiler_extra_flags": (Kind.BLANK_LIST, {}),
    "xla_gpu_ptx_file": (Kind.WHOLE_LIST, {}),
    "xla_enable_nccl_symmetric_buffers_for_collectives": (Kind.COLLECTIVE_FILTERS, {}),
    "xla_gpu_execution_terminate_timeout": (Kind.DURATION, {}),
    "xla_gpu_device_execution_terminate_timeout": (Kind.DURATION, {}),
    "xla_gpu_enable_libnvptxcompiler": (Kind.FALSE_ONLY, {}),
    "xla_gpu_experimental_max_unroll_factor": (Kind.INT32, {"minimum": 1}),
}

# Flags that write no field of their own name: flag -> the field ("": none), kind, and what else the row says.
_FOREIGN: Mapping[str, tuple[str, FlagKind, Mapping[str, Any]]] = {
    "xla_fuel": ("", Kind.FUEL, {}),
    "xla_cpu_use_thunk_runtime": ("", Kind.DEPRECATED, {}),
    "xla_gpu_strict_conv_algorithm_picker": ("", Kind.NO_EFFECT, {}),
    "xla_gpu_enable_cudnn_fmha": ("", Kind.NO_EFFECT, {}),
    "xla_gpu_enable_triton_gemm_int4": ("", Kind.NO_EFFECT, {}),
    "xla_gpu_enable_nccl_clique_optimization": ("", Kind.NO_EFFECT, {}),
    "xla_gpu_executable_terminate_timeout": (
        "xla_gpu_executable_terminate_timeout_seconds",
        Kind.INT32,
        {},
    ),
    "xla_gpu_executable_warn_stuck_timeout": (
        "xla_gpu_executable_warn_stuck_timeout_seconds",
        Kind.INT32,
        {},
    ),
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": (
        "xla_cpu_collective_call_warn_stuck_seconds",
        Kind.INT32,
        {},
    ),
    "xla_gpu_enable_libnvjitlink": (
        "xla_gpu_libnvjitlink_mode",
        Kind.BOOL_AS_WORD,
        {"words": {"true": "LIB_NV_JIT_LINK_MODE_ENABLED", "false": "LIB_NV_JIT_LINK_MODE_DISABLED"}},
    ),
    "xla_gpu_graph_enable_concurrent_region": (
        "xla_gpu_command_buffer_scheduling_mode",
        Kind.BOOL_AS_WORD,
        {"words": {"true": "CONCURRENT", "false": "SERIALIZE"}},
    ),
    "xla_cpu_enable_concurrency_optimized_scheduler": (
        "xla_cpu_scheduler_type",
        Kind.BOOL_AS_WORD,
        {
            "words": {
                "true": "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED",
                "false": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
            }
        },
    ),
    "xla_gpu_unsupported_use_all_reduce_one_shot_kernel": (
        "xla_gpu_experimental_use_collective_kernels",
        Kind.BOOL_AS_MEMBER,
        {"words": {"true": "COLLECTIVE_KERNEL_ALL_REDUCE"}},
    ),
    "xla_gpu_experimental_thunk_buffer_debug_filter_by_thunk_id_ranges": (
        "xla_gpu_experimental_thunk_buffer_debug_filter",
        Kind.THUNK_ID_RANGES,
        {},
    ),
    "xla_gpu_experimental_thunk_buffer_debug_filter_by_profile_annotation_re": (
        "xla_gpu_experimental_thunk_buffer_debug_filter",
        Kind.ANNOTATION_REGEXES,
        {},
    ),
    **{
        f"xla_gpu_enable_pipelined_{collective}": (
            f"xla_gpu_pipeline_{collective}",
            Kind.BOOL_AS_WORD,
            {
                "words": {
                    "true": "COLLECTIVE_PIPELINING_MODE_ON",
                    "false": "COLLECTIVE_PIPELINING_MODE_DEFAULT",
                }
            },
        )
        for collective in ("all_reduce", "all_gather", "reduce_scatter")
    },
}


def foreign_flags(fields: Mapping[str, FieldShape]) -> dict[str, str]:
    """Flags that a jaxlib with these fields can have under another name -> their field, "" for none.

    Where the field is missing, such a flag is an ordinary one with a field of its own, or is not there.
    """
    return {name: field for name, (field, _, _) in _FOREIGN.items() if not field or field in fields}


def kind_of(name: str, field_name: str, shape: FieldShape | None) -> tuple[FlagKind, dict[str, Any]]:
    """How a flag reads its value.

    Args:
      name: of the flag.
      field_name: of the field it writes; "" if none.
      shape: of that field; None if none.

    Returns:
      The kind, and further entries of its row in a catalog (`words`, `prefix`, `minimum`).
    """
    if name in _FOREIGN:
        field, kind, extra = _FOREIGN[name]
        if field in ("", field_name):
            return kind, dict(extra)
    if shape is None:
        return Kind.NO_EFFECT, {}
    kind, extra = _ROWS[name] if name in _ROWS else _by_type(shape)
    prefix = {"prefix": _PREFIXES[shape.enum]} if shape.enum in _PREFIXES else {}
    return kind, {**extra, **prefix}


def _by_type(shape: FieldShape) -> tuple[FlagKind, Mapping[str, Any]]:
    if shape.is_map:
        return Kind.MAP, {}
    if shape.repeated:
        return (Kind.ENUM_LIST if shape.type == "enum" else Kind.COMMA_LIST), {}
    if shape.enum in _WORDS:
        kind, words = _WORDS[shape.enum]
        return kind, {"words": {word: member for word, member in words.items() if member in shape.members}}
    return Kind(shape.type), {}
