"""What to write instead of flags and values that are gone, where a person knows and no catalog can.

Invariant: a migration is only a proposal; whoever shows it first checks that the jaxlib accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from xla_flags.literals import parse_bool
from xla_flags.spelling import flag_text


@dataclass(frozen=True, slots=True)
class Migration:
    """What became of a flag.

    Attributes:
      why: a sentence without a final full stop.
      text: what to write instead of the flag; "": nothing, leave it out; None: nothing is known.
    """

    why: str
    text: str | None


Rule: TypeAlias = Callable[[str], Migration]
"""The value that was given ("true" for a bare flag) -> what became of the flag with that value."""

_COMMANDS = "--xla_gpu_enable_command_buffer="
_GRAPH_LEVELS = {"0": "", "1": "FUSION", "2": "FUSION,CUBLAS", "3": "FUSION,CUBLAS,CUDNN"}


def _graph_level(value: str) -> Migration:
    members = _GRAPH_LEVELS.get(value.strip())
    why = "the level became a list of what command buffers record"
    if members is None:
        return Migration(why, None)
    return Migration(why + ("; the empty list turns them off" if not members else ""), _COMMANDS + members)


def _renamed(new: str) -> Rule:
    return lambda value: Migration(f"it is called {new} now", flag_text(new, value))


def _always(what: str) -> Rule:
    """A switch for what is always on now."""

    def rule(value: str) -> Migration:
        if parse_bool(value) is False:
            return Migration(f"{what} and can no longer be switched off by it", None)
        return Migration(f"{what}", "")

    return rule


def _gone(why: str) -> Rule:
    return lambda value: Migration(why, "")


def _pipelined(value: str) -> Migration:
    parts = ("all_reduce", "all_gather", "reduce_scatter")
    text = " ".join(f"--xla_gpu_enable_pipelined_{each}={value}" for each in parts)
    return Migration("it became one flag for each kind of collective", text)


def _assembler_flags(value: str) -> Migration:
    why = "xla_gpu_ptx_compiler_extra_flags took its place; its entries are separated by blanks"
    return Migration(why, flag_text("xla_gpu_ptx_compiler_extra_flags", value.replace(",", " ")))


def _pipeline_parallelism(value: str) -> Migration:
    new = "xla_gpu_experimental_pipeline_parallelism_opt_level"
    level = {True: "ENABLE", False: "DISABLE"}.get(bool(parse_bool(value)))
    return Migration(f"it became {new}", f"--{new}=PIPELINE_PARALLELISM_OPT_LEVEL_{level}")


_BF16 = "ask for the dot algorithm in the program instead (jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X{})"

# In the order of names.
RULES: Mapping[str, Rule] = {
    "xla_cpu_use_mkl_dnn": _renamed("xla_cpu_use_onednn"),
    "xla_cpu_use_xla_runtime": _gone("that runtime is gone"),
    "xla_gpu_asm_extra_flags": _assembler_flags,
    "xla_gpu_cuda_graph_capture_threshold": _renamed("xla_gpu_graph_min_graph_size"),
    "xla_gpu_cuda_graph_enable_concurrent_region": _renamed("xla_gpu_graph_enable_concurrent_region"),
    "xla_gpu_cuda_graph_level": _graph_level,
    "xla_gpu_dump_hlo_unoptimized_snapshots": _renamed("xla_dump_hlo_unoptimized_snapshots"),
    "xla_gpu_enable_address_computation_fusion": _renamed("xla_gpu_enable_dynamic_slice_fusion"),
    "xla_gpu_enable_bf16_3way_gemm": _gone(_BF16.format(3)),
    "xla_gpu_enable_bf16_6way_gemm": _gone(_BF16.format(6)),
    "xla_gpu_enable_cudnn_frontend": _always("the cuDNN frontend is always used"),
    "xla_gpu_enable_experimental_pipeline_parallelism_opt": _pipeline_parallelism,
    "xla_gpu_enable_mlir_emitters": _always("these emitters are always used"),
    "xla_gpu_enable_pipelined_collectives": _pipelined,
    "xla_gpu_enable_priority_fusion": _always("priority fusion is always on"),
    "xla_gpu_enable_triton_softmax_fusion": _always("softmax fusion with Triton is always on"),
    "xla_gpu_enable_xla_runtime_executable": _gone("that runtime is gone; thunks took its place"),
    "xla_gpu_graph_level": _graph_level,
}

# Switches for single async collectives, all of which are asynchronous by default now.
_ASYNC = re.compile(
    "xla_gpu_enable_async_(all_reduce|all_gather|reduce_scatter|collective_broadcast|all_to_all"
    "|collective_permute|collectives)"
)
_DISABLE_ASYNC = "--xla_gpu_disable_async_collectives="


def migrate(name: str, value: str) -> Migration | None:
    """What to write instead of a flag.

    Args:
      name: of a flag that is unknown; without dashes.
      value: that was given to it, `true` for a bare flag.
    """
    if match := _ASYNC.fullmatch(name):
        if parse_bool(value) is False:
            collective = match[1].replace("_", "").upper()
            why = "collectives are asynchronous by default; there is a list of those that are not to be"
            return Migration(why, _DISABLE_ASYNC + collective.replace("COLLECTIVES", "ALLCOLLECTIVES"))
        return Migration("collectives are asynchronous by default", "")
    rule = RULES.get(name)
    return rule(value) if rule is not None else None


RENAMED_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "ALWAYS_UPDATE": (),
    "NEVER_UPDATE": ("SKIP_TEMP",),
    "CAPTURE_CMD_NEVER_UPDATE": ("SKIP_PROFILED",),
    "SKIP_TEMP": ("NEVER_UPDATE",),
    "SKIP_PROFILED": ("CAPTURE_CMD_NEVER_UPDATE",),
    "ADDRESS_COMPUTATION_FUSION": ("DYNAMIC_SLICE_FUSION",),
}
"""Enum member -> members that took, or had, its number and its place."""
