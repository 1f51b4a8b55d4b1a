from __future__ import annotations

import pytest

from jax_cmdbuf.executable.ffi_traits import FFI_TRAITS, with_targets


@pytest.mark.parametrize(
    "name", ["cusolver_potrf_ffi", "cusolver_syevd_ffi", "cusparse_gtsv2_ffi", "cu_lu_pivots_to_permutation"]
)
def test_linear_algebra_is_not_recorded(name: str) -> None:
    assert FFI_TRAITS[name] is False


def test_kernels_written_in_pallas_are() -> None:
    assert FFI_TRAITS["mosaic_gpu_v2"]
    assert FFI_TRAITS["triton_kernel_call_ffi"]


def test_a_user_adds_targets_without_changing_the_table() -> None:
    table = with_targets(["mine", "cusolver_potrf_ffi"])
    assert table["mine"]
    assert table["cusolver_potrf_ffi"]
    assert "mine" not in FFI_TRAITS
    assert FFI_TRAITS["cusolver_potrf_ffi"] is False
