"""Every private or version-dependent name of jax and jaxlib that this package uses, and nothing else.

Invariant: a name that a jaxlib release lacks gives one sentence, not an AttributeError.
"""

from __future__ import annotations

import functools
import importlib
from importlib.metadata import version
from typing import Any

from jax_cmdbuf.errors import MissingDependencyError

__all__ = [
    "allow_ffi_effect_everywhere",
    "compile_stablehlo",
    "hlo_text_to_proto",
    "parse_mlir",
    "register_shardwise_target",
]


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


@functools.cache
def allow_ffi_effect_everywhere() -> None:
    """Lets FFI calls with side effects stand under ``checkpoint`` and custom derivatives.

    jax 0.11 does so itself; 0.10 refuses, though such a call is as repeatable there as anywhere.
    """
    effect = _private("jax._src.ffi", "FfiEffect")
    for kind in ("remat_allowed_effects", "custom_derivatives_allowed_effects", "partial_eval_kept_effects"):
        _private("jax._src.effects", kind).add_type(effect)


def register_shardwise_target(target: str, attributes: tuple[str, ...]) -> None:
    """Tells XLA's partitioner to call a custom call without results once per device, on the local shards.

    Otherwise a program that is partitioned automatically cannot contain it. Touches no device: plugins are
    told when JAX loads them.

    Args:
      target: the custom call's target, an FFI handler.
      attributes: names of its attributes, all of them strings.
    """
    register = _private("jaxlib.xla_client", "register_custom_call_partitioner")
    callbacks = {
        "prop_user_sharding": _keep_sharding,
        "partition": functools.partial(_partition_shardwise, target, attributes),
        "infer_sharding_from_operands": _no_results,
        # A side effect on replicated operands happens on every device.
        "can_side_effecting_have_replicated_sharding": True,
    }
    register(target, **callbacks)
    _private("jax._src.xla_bridge", "register_plugin_callbacks")(
        functools.partial(register, name=target, **callbacks)
    )


def _keep_sharding(sharding: Any, shape: Any, config: bytes) -> Any:
    return sharding


def _no_results(shapes: Any, shardings: Any, result: Any, config: bytes) -> Any:
    return None


def _partition_shardwise(
    target: str,
    attributes: tuple[str, ...],
    shapes: Any,
    shardings: Any,
    result_shape: Any,
    result_sharding: Any,
    config: bytes,
) -> tuple[bytes, Any, Any]:
    """The partitioner's question for one call site: the program of one device, as MLIR bytecode.

    Signature and answer are those of ``jax._src.custom_partitioning``.
    """
    import jax

    ir = _private("jaxlib.mlir", "ir")
    mlir = _private("jax._src.interpreters", "mlir")
    with mlir.make_ir_context():
        values = ir.DictAttr(ir.Attribute.parse(config.decode()))
        strings = {name: ir.StringAttr(values[name]).value for name in attributes}
    tiles = [sharding.tile(shape) for shape, sharding in zip(shapes, shardings, strict=True)]
    arguments = [
        jax.ShapeDtypeStruct(tile.dimensions(), tile.numpy_dtype())  # type: ignore[no-untyped-call]
        for tile in tiles
    ]
    call = jax.ffi.ffi_call(target, (), has_side_effect=True)
    traced = jax.jit(lambda *shards: call(*shards, **strings), keep_unused=True).trace(*arguments)
    # The module says nothing of the platform; naming one keeps JAX from asking for its default device.
    lowered = traced.lower(lowering_platforms=("cpu",))
    return mlir.module_to_bytecode(lowered.compiler_ir()), shardings, result_sharding
