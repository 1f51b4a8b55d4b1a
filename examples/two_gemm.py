"""Two matrix products with a nonlinearity between them: a program too small for a command buffer.

It has fewer thunks than `xla_gpu_graph_min_graph_size`, 5 by default: the plan leaves all of them outside.
With 1 they become one command buffer:

    jax-cmdbuf plan examples/two_gemm.py:two_gemm
    jax-cmdbuf plan examples/two_gemm.py:two_gemm --xla_flags=--xla_gpu_graph_min_graph_size=1
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.jit
def two_gemm(x: jax.Array, w_in: jax.Array, w_out: jax.Array) -> jax.Array:
    """x f32[n, a], w_in f32[a, b], w_out f32[b, c] to f32[n, c]."""
    return jnp.tanh(x @ w_in) @ w_out


def two_gemm_args() -> tuple[jax.ShapeDtypeStruct, ...]:
    """The positional arguments of `two_gemm`, as shapes."""
    return tuple(
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((512, 1024), (1024, 1024), (1024, 512))
    )
