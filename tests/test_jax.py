from __future__ import annotations

import pytest

from jax_cmdbuf import _jax
from jax_cmdbuf.errors import MissingDependencyError


def test_a_name_that_jax_lacks_is_one_sentence() -> None:
    for module, name in (("jax._src.ffi", "NoSuchName"), ("jax._src.no_such_module", "x")):
        with pytest.raises(MissingDependencyError, match=rf"has no {module}.{name}.*0\.10\.2 to 0\.12"):
            _jax._private(module, name)


def test_hlo_text_becomes_a_program_that_mlir_reads() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[4]{0} parameter(0)
  ROOT r = f32[4]{0} add(x, x)
}
"""
    module = _jax.parse_mlir(_jax.hlo_text_to_stablehlo(text))
    assert "stablehlo.add" in str(module)
