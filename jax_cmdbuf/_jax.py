"""Every private or version-dependent name of jax and jaxlib that this package uses, and nothing else.

Invariant: a name that a jaxlib release lacks gives one sentence, not an AttributeError.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from jax_cmdbuf.errors import MissingDependencyError

__all__ = [
    "allow_ffi_effect_everywhere",
    "backends_started",
    "cache_size_of",
    "compile_stablehlo",
    "compiler_options_of",
    "disable_jit_switch",
    "distributed_process",
    "hlo_text_to_proto",
    "jit_like",
    "jit_with_options",
    "jit_without_options",
    "kept_arguments",
    "parse_mlir",
    "register_shardwise_target",
    "result_types",
    "shards_of",
    "static_arguments",
    "top_level_check",
    "trace_context_reader",
    "weakly_typed",
]


def _private(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise _lacks(f"{module}.{name}") from None


def _lacks(what: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"jaxlib {version('jaxlib')} has no {what}, which this package was written against "
        "(known to work: jaxlib 0.10.2 to 0.12)"
    )


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


def kept_arguments(lowered: Any) -> tuple[int, ...]:
    """Positions of the flattened dynamic arguments that a ``Lowered`` takes; unused ones are left out."""
    try:
        return tuple(sorted(lowered._lowering.compile_args["kept_var_idx"]))
    except (AttributeError, KeyError):
        raise _lacks("Lowered._lowering.compile_args['kept_var_idx']") from None


def static_arguments(jitted: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(positions, names) of a jitted function's static arguments, as given to or inferred by ``jax.jit``."""
    info = getattr(jitted, "_jit_info", None)
    if info is None:
        raise _lacks("the attribute _jit_info of jitted functions")
    return tuple(info.static_argnums), tuple(info.static_argnames)


def jit_with_options(jitted: Any, options: Mapping[str, Any]) -> Any | None:
    """The same function jitted in the same way, but with more compiler options.

    None if ``jax.jit`` did not make it. ``jax.jit`` around a jitted function would keep neither donation nor
    static arguments.
    """
    info, function = getattr(jitted, "_jit_info", None), getattr(jitted, "_fun", None)
    if info is None or function is None:
        return None
    pairs = dict(info.compiler_options_kvs) | dict(options)
    return _private("jax._src.pjit", "_cpp_pjit")(
        function, info._replace(compiler_options_kvs=tuple(pairs.items()))
    )


def jit_like(jitted: Any, function: Callable[..., Any], options: Mapping[str, Any]) -> Any | None:
    """Another function jitted as ``jitted`` is: donation, static arguments, shardings; with more options.

    None if ``jax.jit`` did not make it.
    """
    info = getattr(jitted, "_jit_info", None)
    if info is None:
        return None
    pairs = dict(info.compiler_options_kvs) | dict(options)
    return _private("jax._src.pjit", "_cpp_pjit")(
        function, info._replace(compiler_options_kvs=tuple(pairs.items()))
    )


def jit_without_options(jitted: Any) -> Any:
    """The same function jitted in the same way, but for options of the compiler: traces refuse those."""
    info = jitted._jit_info
    if not info.compiler_options_kvs:
        return jitted
    return _private("jax._src.pjit", "_cpp_pjit")(jitted._fun, info._replace(compiler_options_kvs=()))


def result_types(traced: Any) -> tuple[Any, ...]:
    """Types of the flattened results of a ``Traced``, which say more than the public ones: ``weak_type``."""
    return tuple(traced.jaxpr.out_avals)


def weakly_typed(value: Any) -> Any:
    """The same array with a weak type, as what is computed from Python's numbers has."""
    return _private("jax._src.lax.lax", "_convert_element_type")(value, weak_type=True)


def compiler_options_of(jitted: Any) -> dict[str, Any]:
    """The compiler options that a jitted function was made with."""
    info = getattr(jitted, "_jit_info", None)
    return dict(info.compiler_options_kvs) if info is not None else {}


def cache_size_of(jitted: Any) -> Callable[[], int] | None:
    """Says at each call for how many signatures it is compiled; None if ``jax.jit`` did not make it."""
    return getattr(jitted, "_cache_size", None)


def top_level_check() -> Callable[[], bool]:
    """A function that says whether a call made now runs, rather than becomes part of an outer trace."""
    check: Callable[[], bool] = _private("jax._src.core", "trace_ctx").is_top_level
    return check


def shards_of(array: Any) -> Sequence[Any]:
    """An array's parts on the process's devices, each as an array; the public ways take much longer.

    ``addressable_data`` gives the first one, whatever was asked for, if all are alike.
    """
    parts: Sequence[Any] = array._arrays
    return parts


def trace_context_reader() -> Callable[[], Hashable]:
    """A function that gives the settings of this thread that make jitted functions compile anew."""
    reader: Callable[[], Hashable] = _private("jax._src.config", "trace_context")
    return reader


def backends_started() -> bool:
    """Whether JAX has started its backends; asking starts none."""
    started: bool = _private("jax._src.xla_bridge", "backends_are_initialized")()
    return started


def distributed_process() -> tuple[int, int]:
    """(index, count) of this process under ``jax.distributed``, (0, 1) without; asking starts no backend."""
    state = _private("jax._src.distributed", "global_state")
    if state.client is None:
        return 0, 1
    return int(state.process_id), int(state.num_processes)


def disable_jit_switch() -> Any:
    """An object whose ``value`` says whether jitted functions run op by op; the public way takes longer."""
    return _private("jax._src.config", "disable_jit")


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
