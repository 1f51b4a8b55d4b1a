from __future__ import annotations

import struct
from typing import Any

import pytest

from jax_cmdbuf.executable.decode_hlo import (
    constant_literals,
    entry_parameters,
    instruction_names,
    literal_bytes,
    shape_text,
)
from jax_cmdbuf.executable.descriptors import installed_schema


def message(name: str, text: str) -> Any:
    from google.protobuf import text_format

    return text_format.Parse(text, installed_schema().message(name)())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("element_type: F32 dimensions: 128 dimensions: 256", "f32[128,256]"),
        ("element_type: BF16", "bf16[]"),
        ("element_type: PRED dimensions: 0", "pred[0]"),
        ("element_type: S32 dimensions: 8 is_dynamic_dimension: true", "s32[<=8]"),
        ("element_type: TOKEN", "token[]"),
        ("element_type: OPAQUE_TYPE", "opaque[]"),
        (
            "element_type: TUPLE tuple_shapes { element_type: F32 } tuple_shapes { element_type: TUPLE }",
            "(f32[], ())",
        ),
    ],
)
def test_shapes(text: str, expected: str) -> None:
    assert shape_text(message("xla.ShapeProto", text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shape { element_type: F32 } f32s: 1.5 f32s: -2", struct.pack("<2f", 1.5, -2)),
        ("s32s: -1 s32s: 2", struct.pack("<2i", -1, 2)),
        ("u64s: 18446744073709551615", b"\xff" * 8),
        ("f64s: 0.1", struct.pack("<d", 0.1)),
        ("preds: true preds: false", b"\1\0"),
        ("c64s: 1 c64s: 2", struct.pack("<2f", 1, 2)),
        ('bf16s: "\\200?"', b"\x80?"),
        ('s8s: "\\377\\001"', b"\xff\x01"),
        ("shape { element_type: F32 }", None),
        ("tuple_literals { f32s: 1 }", None),
    ],
)
def test_literals(text: str, expected: bytes | None) -> None:
    assert literal_bytes(message("xla.LiteralProto", text)) == expected


MODULE = """
entry_computation_id: 2
computations { id: 1 name: "inner" instructions { id: 11 name: "p" opcode: "parameter" } }
computations {
  id: 2
  instructions { id: 21 name: "b.1" opcode: "parameter" parameter_number: 1 }
  instructions { id: 22 name: "a.1" opcode: "parameter" metadata { op_name: "params['w']" } }
  instructions { id: 23 name: "constant.3-x" opcode: "constant" literal { s32s: 5 } }
  instructions { id: 24 name: "iota" opcode: "iota" }
}
"""


def test_parts_of_a_module_are_found() -> None:
    module = message("xla.HloModuleProto", MODULE)
    assert [one.name for one in entry_parameters(module)] == ["a.1", "b.1"]
    assert instruction_names(module) == {11: "p", 21: "b.1", 22: "a.1", 23: "constant.3-x", 24: "iota"}
    assert list(constant_literals(module)) == ["buffer_for_constant_3_x"]
    assert entry_parameters(message("xla.HloModuleProto", "entry_computation_id: 9")) == []
