"""What is read from the optimized HLO module: shapes, parameters, constants and instruction names.

Mirrors ``xla/service/hlo.proto`` and ``xla/xla_data.proto``. Invariant: nothing here interprets the program;
it only finds and converts.
"""

from __future__ import annotations

import re
import struct
from typing import Any

__all__ = ["constant_literals", "entry_parameters", "instruction_names", "literal_bytes", "shape_text"]

_SYMBOL_PREFIX = "buffer_for_"
# Literal fields that hold numbers; all others hold raw bytes already.
_NUMBER_FORMATS = {
    "preds": "?",
    "s32s": "i",
    "u32s": "I",
    "s64s": "q",
    "u64s": "Q",
    "f32s": "f",
    "f64s": "d",
    "c64s": "f",
    "c128s": "d",
}


def shape_text(shape: Any) -> str:
    """A ``ShapeProto`` as XLA prints it without layouts, for example "f32[128,256]" or "(f32[2], s32[])"."""
    element = shape.DESCRIPTOR.fields_by_name["element_type"].enum_type.values_by_number.get(
        shape.element_type
    )
    name = element.name.lower() if element is not None else f"type{shape.element_type}"
    if name == "tuple":
        return "(" + ", ".join(map(shape_text, shape.tuple_shapes)) + ")"
    if name == "token":
        return "token[]"
    dynamic = list(shape.is_dynamic_dimension)
    dimensions = (
        ("<=" if position < len(dynamic) and dynamic[position] else "") + str(size)
        for position, size in enumerate(shape.dimensions)
    )
    return f"{name.removesuffix('_type')}[{','.join(dimensions)}]"


def entry_parameters(module: Any) -> list[Any]:
    """The parameter instructions of the entry computation, by number."""
    for computation in module.computations:
        if computation.id == module.entry_computation_id:
            parameters = [one for one in computation.instructions if one.opcode == "parameter"]
            return sorted(parameters, key=lambda one: one.parameter_number)
    return []


def instruction_names(module: Any) -> dict[int, str]:
    """Instruction id -> name, over all computations."""
    return {one.id: one.name for computation in module.computations for one in computation.instructions}


def constant_literals(module: Any) -> dict[str, Any]:
    """Symbol in the module's binary -> ``LiteralProto`` of the constant that it stores.

    The symbol is ``buffer_for_`` and the instruction's name, whatever is no letter, digit or underscore made
    one (``xla/service/llvm_ir/llvm_util.cc``).
    """
    return {
        _SYMBOL_PREFIX + re.sub(r"[^A-Za-z0-9_]", "_", one.name): one.literal
        for computation in module.computations
        for one in computation.instructions
        if one.opcode == "constant" and one.HasField("literal")
    }


def literal_bytes(literal: Any) -> bytes | None:
    """A literal's content as it lies in device memory (little endian, the literal's own layout).

    None for tuples and for literals without content.
    """
    for field, value in literal.ListFields():
        if field.name in ("shape", "sparse_indices", "dynamic_sizes"):
            continue
        if field.name == "tuple_literals":
            return None
        code = _NUMBER_FORMATS.get(field.name)
        return bytes(value) if code is None else struct.pack(f"<{len(value)}{code}", *value)
    return None
