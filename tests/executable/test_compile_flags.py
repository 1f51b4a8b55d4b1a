from __future__ import annotations

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.executable.compile_flags import check_flags


def test_flags_that_xla_accepts_pass() -> None:
    assert check_flags("").cuda_data_dir is None
    checked = check_flags("--xla_gpu_graph_min_graph_size=2 --xla_gpu_cuda_data_dir=/some/where")
    assert checked.cuda_data_dir == "/some/where"


def test_flags_that_would_end_the_process_are_refused_with_xlas_message() -> None:
    with pytest.raises(InputError, match=r"XLA refuses the flags: .*--xla_gpu_nope=1"):
        check_flags("--xla_gpu_nope=1")


def test_what_xla_never_reads_is_a_note() -> None:
    checked = check_flags("--xla_gpu_graph_min_graph_size=2 stray --xla_gpu_autotune_level=0")
    assert len(checked.notes) >= 1
    assert all(note.startswith("XLA_FLAGS: ") for note in checked.notes)
