"""Which typed-FFI targets XLA may record into a command buffer.

A handler declares this when it is registered (trait ``kCmdBufferCompatible``, C API
``XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE``); the executable does not store it, so XLA asks the
process that loads it. Invariant: a target that is in no table counts as not compatible, which is also what a
handler that declares nothing is.

Sources: jaxlib's registrations (``jaxlib/gpu/*.cc``, ``jaxlib/mosaic/gpu/custom_call.cc``) and XLA's own
(``xla/stream_executor/cuda/cub_sort_kernel_cuda.cc``), August 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

__all__ = ["FFI_TRAITS", "with_targets"]

_COMPATIBLE = (
    "mosaic_gpu_v2",  # Pallas Mosaic GPU kernels
    "triton_kernel_call_ffi",  # Pallas Triton and jax-triton kernels
    "xla_buffer_python_gpu_callback_cmd_buffer",  # buffer_callback(command_buffer_compatible=True)
    "cb_ok",  # the probe of this project's recordings that declares the trait
)

# Linear algebra and sparse kernels synchronize, allocate or check results on the host; callbacks run Python.
_NOT_COMPATIBLE = (
    *(f"cusolver_{name}_ffi" for name in ("getrf", "geqrf", "orgqr", "ormqr", "potrf", "syevd", "syrk")),
    *(f"cusolver_{name}_ffi" for name in ("gesvd", "gesvdj", "gesvdp", "sytrd", "csrlsvqr", "geev")),
    *(f"cublas_{name}_batched_ffi" for name in ("getrf", "geqrf")),
    *(f"cusparse_csr_{name}_ffi" for name in ("todense", "fromdense", "matvec", "matmat")),
    *(f"cusparse_coo_{name}_ffi" for name in ("todense", "fromdense", "matvec", "matmat")),
    "cusparse_gtsv2_ffi",
    "cu_lu_pivots_to_permutation",
    "cu_cholesky_update_ffi",
    "cu_tridiagonal_solve_perturbed",
    "cu_threefry2x32_ffi",
    "cudnn_rnn_ffi",
    "cudnn_rnn_bwd_ffi",
    "cuhybrid_eig_real",
    "cuhybrid_eig_comp",
    "cuhybrid_geqp3",
    "__cub$DeviceRadixSortKeys",
    "__cub$DeviceRadixSortPairs",
    "xla_ffi_python_gpu_callback",
    "xla_ffi_partitioned_python_gpu_callback",
    "xla_buffer_python_gpu_callback",
    "dce_sink",
    "cb_no",  # the probe of this project's recordings that declares nothing
    "lab_probe",  # a host-synchronizing probe of the same recordings
    "jax_cmdbuf.probe",  # our own (api/probe.py): its handler runs Python
)

# target name -> whether its handler declares itself command-buffer compatible
FFI_TRAITS: Mapping[str, bool] = MappingProxyType(
    dict.fromkeys(_COMPATIBLE, True) | dict.fromkeys(_NOT_COMPATIBLE, False)
)


def with_targets(compatible: Iterable[str]) -> Mapping[str, bool]:
    """The table with a user's own targets added as compatible."""
    return MappingProxyType({**FFI_TRAITS, **dict.fromkeys(compatible, True)})
