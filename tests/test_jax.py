from __future__ import annotations

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
