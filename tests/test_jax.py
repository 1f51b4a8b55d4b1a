from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from jax_cmdbuf import _jax
from jax_cmdbuf.errors import MissingDependencyError


def test_a_name_that_jax_lacks_is_one_sentence() -> None:
    for module, name in (("jax._src.ffi", "NoSuchName"), ("jax._src.no_such_module", "x")):
        with pytest.raises(MissingDependencyError, match=rf"has no {module}.{name}.*0\.10\.2 to 0\.12"):
            _jax._private(module, name)


def test_hlo_text_becomes_a_proto() -> None:
    text = "HloModule named\nENTRY e {\n  ROOT x = f32[4]{0} parameter(0)\n}\n"
    assert b"named" in _jax.hlo_text_to_proto(text)


def test_mlir_is_read_with_the_dialects_of_jax() -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    assert "@main" in str(_jax.parse_mlir(text))


def test_more_compiler_options_change_nothing_else() -> None:
    jitted = jax.jit(lambda a, n, *, how: a * n, static_argnums=1, static_argnames="how", donate_argnums=0)
    other = _jax.jit_with_options(jitted, {"xla_cpu_enable_fast_math": True})
    assert other is not None
    assert _jax.compiler_options_of(jitted) == {}
    assert _jax.compiler_options_of(other) == {"xla_cpu_enable_fast_math": True}
    assert _jax.static_arguments(other) == ((1,), ("how",))
    given = jnp.ones(3)
    assert other(given, 2, how="x").tolist() == [2, 2, 2]
    assert given.is_deleted()
    assert other.__name__ == jitted.__name__
    assert _jax.jit_with_options(len, {}) is None


def test_jax_says_how_many_signatures_and_whether_it_traces() -> None:
    jitted = jax.jit(lambda a: a + 1)
    size, is_top_level = _jax.cache_size_of(jitted), _jax.top_level_check()
    assert size is not None
    assert _jax.cache_size_of(len) is None
    jitted(1.0), jitted(2.0), jitted(1)
    assert size() == 2
    seen = []
    jax.jit(lambda a: seen.append(is_top_level()))(1)
    jax.vmap(lambda a: seen.append(is_top_level()) or a)(jnp.ones(2))
    jax.grad(lambda a: seen.append(is_top_level()) or a)(1.0)
    assert seen == [False] * 3
    assert is_top_level()


def test_settings_that_compile_anew_are_read() -> None:
    context, switch = _jax.trace_context_reader(), _jax.disable_jit_switch()
    before = context()
    assert hash(before) == hash(context())
    with jax.default_matmul_precision("float32"):
        assert context() != before
    assert not switch.value
    with jax.disable_jit():
        assert switch.value


def test_an_array_is_its_parts_on_each_device() -> None:
    (part,) = _jax.shards_of(array := jnp.ones(3))
    assert part.unsafe_buffer_pointer() == array.unsafe_buffer_pointer()


def test_asking_for_the_process_starts_no_backend() -> None:
    code = """
from jax_cmdbuf import _jax
assert _jax.distributed_process() == (0, 1)
assert not _jax.backends_started()
import jax
jax.devices()
assert _jax.backends_started()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
