"""The two messages of a serialized executable -> :class:`Executable`.

Mirrors ``xla/service/gpu/gpu_executable.proto``. Invariant: a field that some release does not have gets its
neutral value (None, empty, one device); a table that contradicts itself is a ContainerError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable import decode_hlo
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.executable.container import Container, read_container
from jax_cmdbuf.executable.decode_thunks import decode_thunks
from jax_cmdbuf.executable.executable import Constant, DeviceDescription, Executable, Output, Version
from jax_cmdbuf.executable.thunks import Thunk

__all__ = ["decode_executable", "decode_messages", "parse_version"]

# Enum members whose numbers mean something else in a release series: (enum, series) -> number -> name.
_RENUMBERED = {
    ("xla.DebugOptions.CommandBufferUpdateMode", "0.10"): {1: "NEVER_UPDATE", 2: "CAPTURE_CMD_NEVER_UPDATE"},
    ("xla.DebugOptions.CommandBufferUpdateMode", "0.11"): {1: "SKIP_TEMP", 2: "SKIP_PROFILED"},
    ("xla.DebugOptions.CommandBufferUpdateMode", "0.12"): {1: "SKIP_TEMP", 2: "SKIP_PROFILED"},
}
_PLATFORMS = {
    "cuda_compute_capability": "CUDA",
    "rocm_compute_capability": "ROCM",
    "oneapi_compute_capability": "SYCL",
}


def decode_executable(data: bytes, *, source: str = "the input", trusted: bool = False) -> Executable:
    """Reads a serialized executable; see :meth:`Executable.from_bytes`.

    Args:
      data: the bytes, gzipped or not.
      source: how errors name them.
      trusted: they came from this process's XLA: checksums of the data are not verified.

    Raises:
      ContainerError: not a serialized XLA:GPU executable, or a damaged one.
      MissingDependencyError: nothing installed defines the messages.
    """
    container = read_container(data, source=source, trusted=trusted)
    try:
        return decode_messages(container)
    except ContainerError as error:
        raise ContainerError(f"{source} is not a readable XLA:GPU executable: {error}") from error


def decode_messages(container: Container) -> Executable:
    """Decodes the messages.

    Raises:
      ContainerError: they contradict themselves.
    """
    message: Any = container.executable
    module = message.hlo_module_with_config.hlo_module
    config = message.hlo_module_with_config.config
    series = _release_series(container)
    entry = decode_hlo.entry_parameters(module)
    allocations = _allocations(message)
    thunks = decode_thunks(message.thunks)
    _check_indices(thunks, len(allocations))
    return Executable(
        module=module.name or message.module_name,
        allocations=allocations,
        thunks=thunks,
        debug_options=_debug_options(config.debug_options, series),
        device=_device(message),
        outputs=tuple(
            Output(tuple(entry.shape_index.indexes), entry.output_info.allocation_index)
            for entry in message.output_info_map
        ),
        parameter_shapes=tuple(map(decode_hlo.shape_text, message.program_shape.parameters)),
        parameter_names=tuple(parameter.name for parameter in entry),
        parameter_paths=tuple(parameter.metadata.op_name for parameter in entry),
        result_shape=decode_hlo.shape_text(message.program_shape.result),
        constants=_constants(message, module, allocations),
        binary=message.binary,
        hlo_uses=_hlo_uses(message, module),
        jaxlib=series,
        num_replicas=config.replica_count or 1,
        num_partitions=config.num_partitions or 1,
        partition_size=config.partition_size,
    )


def _release_series(container: Container) -> str:
    """What the layout tells: 0.10 has a plain outer message, 0.12 brought ``gpu_topology``."""
    if not container.outer_is_riegeli:
        return "0.10"
    message = container.executable
    has_topology = "gpu_topology" in message.DESCRIPTOR.fields_by_name and message.HasField("gpu_topology")
    return "0.12" if has_topology else "0.11"


def _allocations(message: Any) -> tuple[BufferAllocation, ...]:
    table = message.buffer_allocations.values or message.buffer_assignment.buffer_allocations
    allocations = []
    for position, proto in enumerate(table):
        if proto.index != position or proto.size < 0:
            raise ContainerError(f"entry {position} of its allocation table has index {proto.index}")
        is_parameter = proto.is_entry_computation_parameter
        allocations.append(
            BufferAllocation(
                index=proto.index,
                size=proto.size,
                color=proto.color,
                is_thread_local=proto.is_thread_local,
                is_tuple=proto.is_tuple,
                is_constant=proto.is_constant,
                parameter_number=proto.parameter_number if is_parameter else None,
                parameter_shape_index=tuple(proto.parameter_shape_index),
                maybe_live_out=proto.maybe_live_out,
                is_parameter_aliased_with_output=proto.is_parameter_aliased_with_output,
            )
        )
    return tuple(allocations)


def _check_indices(thunks: Iterable[Thunk], count: int) -> None:
    for thunk in thunks:
        for index in thunk.allocations:
            if not 0 <= index < count:
                raise ContainerError(f"thunk {thunk.id} uses allocation {index} of {count}")


def _debug_options(message: Any, series: str) -> Mapping[str, object]:
    """Every option that is set, enum members by name, repeated fields as tuples, maps as dicts."""
    options: dict[str, object] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            options[field.name] = dict(value)
        elif field.is_repeated:
            options[field.name] = tuple(_plain(field, element, series) for element in value)
        else:
            options[field.name] = _plain(field, value, series)
    return options


def _plain(field: FieldDescriptor, value: Any, series: str) -> object:
    if field.enum_type is not None:
        renumbered = _RENUMBERED.get((field.enum_type.full_name, series), {})
        member = field.enum_type.values_by_number.get(value)
        return renumbered.get(value, member.name if member is not None else value)
    return str(value) if field.message_type is not None else value


def _device(message: Any) -> DeviceDescription | None:
    if "gpu_topology" not in message.DESCRIPTOR.fields_by_name or not message.HasField("gpu_topology"):
        return None
    target = message.gpu_topology.gpu_target_config
    if not target.HasField("gpu_device_info"):
        return None
    device = target.gpu_device_info
    return DeviceDescription(
        name=device.name or target.device_description_str,
        runtime_version=parse_version(device.runtime_version),
        driver_version=parse_version(device.driver_version),
        compile_time_toolkit_version=parse_version(device.compile_time_toolkit_version),
        platform=_PLATFORMS.get(
            device.WhichOneof("compute_capability") or "", target.platform_name or "CUDA"
        ),
    )


def parse_version(text: str) -> Version:
    """A version as XLA writes it ("12.9.0", "12.9"); what is no number counts as 0.

    XLA's default for a version that it does not know is 0.0.0, too.
    """
    parts = [int(part) if part.isascii() and part.isdigit() else 0 for part in text.split(".")[:3]]
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major, minor, patch


def _constants(message: Any, module: Any, allocations: tuple[BufferAllocation, ...]) -> tuple[Constant, ...]:
    if not message.constants:
        return ()
    literals = decode_hlo.constant_literals(module)
    constants = []
    for proto in message.constants:
        index = proto.allocation_index
        if not 0 <= index < len(allocations):
            raise ContainerError(f"constant {proto.symbol_name} has allocation {index} of {len(allocations)}")
        literal = literals.get(proto.symbol_name)
        content = decode_hlo.literal_bytes(literal) if literal is not None else None
        constants.append(Constant(proto.symbol_name, index, content))
    return tuple(constants)


def _hlo_uses(message: Any, module: Any) -> Mapping[int, tuple[str, ...]]:
    names = decode_hlo.instruction_names(module)
    assignment = message.buffer_assignment
    buffers = {
        buffer.id: names.get(buffer.defined_at.instruction_id) or buffer.defined_at.instruction_name
        for buffer in assignment.logical_buffers
    }
    uses: dict[int, tuple[str, ...]] = {}
    for allocation in assignment.buffer_allocations:
        found = (buffers.get(value.logical_buffer_id) for value in allocation.assigned)
        if distinct := tuple(dict.fromkeys(name for name in found if name)):
            uses[allocation.index] = distinct
    return uses
