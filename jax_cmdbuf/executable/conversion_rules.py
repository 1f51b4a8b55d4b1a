"""How releases of XLA differ in grouping thunks into command buffers: one row per jaxlib series.

Invariant: code elsewhere asks a row, never a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

__all__ = ["KIND_TYPES", "NEWEST_SERIES", "RULES", "ConversionRules", "rules_for"]

_FUSION, _COLLECTIVES, _CUSTOM_CALL = "FUSION", "COLLECTIVES", "CUSTOM_CALL"

# Thunk kind -> the command type (DebugOptions.CommandBufferCmdType) that must be enabled.
KIND_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "kCustomKernel": _FUSION,
        "kKernel": _FUSION,
        "kPartitionId": _FUSION,
        "kReplicaId": _FUSION,
        "kCopy": _FUSION,
        "kCublasLtMatmul": "CUBLASLT",
        "kGemm": "CUBLAS",
        "kCuDnn": "CUDNN",
        "kConvolution": "CONVOLUTION",
        "kCustomCall": _CUSTOM_CALL,
        "kSelectK": _CUSTOM_CALL,
        "kConditional": "CONDITIONAL",
        "kWhile": "WHILE",
        "kDynamicSliceFusion": "DYNAMIC_SLICE_FUSION",
        "kAllGather": _COLLECTIVES,
        "kAllReduce": _COLLECTIVES,
        "kReduceScatter": _COLLECTIVES,
        "kAllToAll": _COLLECTIVES,
        "kCollectivePermute": _COLLECTIVES,
        "kCollectiveBroadcast": _COLLECTIVES,
        "kRaggedAllToAll": _COLLECTIVES,
        "kSend": _COLLECTIVES,
        "kRecv": _COLLECTIVES,
        "kGroup": _COLLECTIVES,
        "kCollectiveKernel": "COLLECTIVES_KERNEL",
        "kHostExecuteStart": "HOST_EXECUTE",
        "kHostExecuteDone": "HOST_EXECUTE",
    }
)


@dataclass(frozen=True, slots=True)
class ConversionRules:
    """What one series of jaxlib does.

    Attributes:
      series: "0.12"...
      kind_types: thunk kind -> command type; other kinds are never recorded.
      types_needing_cuda_12_3: types dropped below CUDA 12.3; None: all of them.
      untaken_start_blocks_its_stream: whether an async start left outside keeps later ones on its stream
      outside.
      lone_done_fails_list: whether a done without its start makes a nested list ineligible.
      size_counts_nested: whether nested thunks count towards the minimum size.
    """

    series: str
    kind_types: Mapping[str, str]
    types_needing_cuda_12_3: frozenset[str] | None = None
    untaken_start_blocks_its_stream: bool = True
    lone_done_fails_list: bool = True
    size_counts_nested: bool = True


_V12 = ConversionRules("0.12", KIND_TYPES)
_V11 = replace(
    _V12,
    series="0.11",
    kind_types=MappingProxyType({kind: name for kind, name in KIND_TYPES.items() if kind != "kGroup"}),
    types_needing_cuda_12_3=frozenset(
        {
            "CUBLAS",
            "CUBLASLT",
            "CUDNN",
            _CUSTOM_CALL,
            _COLLECTIVES,
            "CONVOLUTION",
            "CONDITIONAL",
            "WHILE",
        }
    ),
    untaken_start_blocks_its_stream=False,
    lone_done_fails_list=False,
    size_counts_nested=False,
)
_V10 = replace(_V11, series="0.10")

RULES: Mapping[str, ConversionRules] = MappingProxyType({rules.series: rules for rules in (_V10, _V11, _V12)})
NEWEST_SERIES = "0.12"


def rules_for(series: str | None) -> ConversionRules:
    """The row of a series; the newest one where the series is unknown."""
    return RULES.get(series or NEWEST_SERIES, RULES[NEWEST_SERIES])
