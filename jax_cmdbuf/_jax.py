"""Every private or version-dependent name of jax and jaxlib that this package uses, and nothing else.

Invariant: a name that a jaxlib release lacks gives one sentence, not an AttributeError.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

from jax_cmdbuf.errors import MissingDependencyError

__all__ = ["compile_stablehlo", "hlo_text_to_proto", "parse_mlir"]


def _private(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise MissingDependencyError(
            f"jaxlib {version('jaxlib')} has no {module}.{name}, which this package was written against "
            "(known to work: jaxlib 0.10.2 to 0.12)"
        ) from None


def hlo_text_to_proto(text: str) -> bytes:
    """HLO text -> serialized ``HloModuleProto``.

    Raises:
      RuntimeError: jaxlib cannot parse the text.
    """
    module = _private("jaxlib._hlo", "hlo_module_from_text")(text)
    proto: bytes = module.as_serialized_hlo_module_proto()
    return proto


def parse_mlir(module: str | bytes) -> Any:
    """MLIR text or bytecode -> ``ir.Module`` in a context that knows JAX's dialects."""
    context = _private("jax.interpreters.mlir", "make_ir_context")()
    return _private("jaxlib.mlir.ir", "Module").parse(module, context)


def compile_stablehlo(module: Any, devices: tuple[Any, ...], options: Any) -> Any:
    """Compiles an ``ir.Module`` for compile-only devices; returns the ``jaxlib`` executable.

    Args:
      module: the ``ir.Module``.
      devices: the topology's devices.
      options: ``CompileOptions`` for them.
    """
    device_list = _private("jaxlib._jax", "DeviceList")(devices)
    return devices[0].client.compile(module, device_list, options)
