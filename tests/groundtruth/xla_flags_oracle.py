"""The installed jaxlib as judge: its verdict on a value of XLA_FLAGS, in the form of the recordings.

Not a test. Invariant: nothing of the parser under test is used, only the catalog's names and the descriptors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xla_flags.descriptors import FieldType, Types, decode, read_file
from xla_flags.generate import DEBUG_OPTIONS, field_shapes
from xla_flags.installed import embedded_files, read_types
from xla_flags.kinds import FieldShape
from xla_flags.probe import Answer, Probe

COMPILE_OPTIONS = "xla/pjrt/proto/compile_options.proto"


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: str
    message: str | None
    usage: str | None
    changed: dict[str, Any] | None
    log: list[str]


class Judge:
    """Asks a probe and reads its answers."""

    def __init__(self, probe: Probe, library: Path) -> None:
        self.probe = probe
        self.types = read_types(library)
        self.wrapper = Types({**self.types.messages}, {**self.types.enums})
        for data in embedded_files(library, [COMPILE_OPTIONS]):
            read_file(data, self.wrapper)
        self.defaults = self.options(probe.ask(None))

    def options(self, answer: Answer) -> dict[str, Any]:
        """Every field of DebugOptions, absent ones at protobuf's default."""
        assert answer.options is not None
        root = next(
            each for name, each in self.wrapper.messages.items() if name.endswith("CompileOptionsProto")
        )
        whole = decode(answer.options, root, self.wrapper)
        present = whole["executable_build_options"]["debug_options"]
        options = {
            name: present.get(name, zero(shape)) for name, (_, shape) in field_shapes(self.types).items()
        }
        for spec in self.types.messages[DEBUG_OPTIONS].fields.values():
            for each in (
                options[spec.name] if spec.repeated and spec.type == "message" else [options[spec.name]]
            ):
                self._fill(each, spec)
        return options

    def _fill(self, value: Any, spec: FieldType) -> None:
        """Writes out fields inside messages whose being absent means no more than being zero."""
        nested = self.types.messages.get(spec.type_name)
        if nested is None or nested.map_entry:
            return
        for inner in nested.fields.values():
            if inner.repeated:
                for each in value.get(inner.name, []):
                    self._fill(each, inner)
            elif not inner.optional and inner.type != "message":
                members = tuple(self.types.enums.get(inner.type_name, ()))
                value.setdefault(inner.name, zero(FieldShape(inner.type, False, False, "", members)))

    def __call__(self, value: bytes | None, cwd: str | Path = ".") -> Verdict:
        answer = self.probe.ask(value, cwd)
        fuel = sorted(text for _, text in answer.log if text.startswith("Compiler fuel"))
        log = [f"{severity} {text}" for severity, text in answer.log if severity != "F" and text not in fuel]
        log += [f"E {text}" for text in fuel]
        if answer.options is not None:
            options = self.options(answer)
            changed = {n: plain(v) for n, v in options.items() if v != self.defaults[n]}
            return Verdict("ok", None, None, changed, log)
        fatal = answer.fatal
        assert fatal is not None
        assert answer.status == 1
        if fatal.startswith("Check failed: tsl::Flags::Parse"):
            usage = fatal.split("\nusage: ", 1)[1].split("\nFlags:\n")[0]
            return Verdict("usage_error", "Flag parsing failed.", usage, None, log)
        return Verdict("fatal", fatal, None, None, log)


def zero(shape: FieldShape) -> Any:
    if shape.is_map or (shape.type == "message" and not shape.repeated):
        return {}
    if shape.repeated:
        return []
    if shape.type == "enum":
        return shape.members[0]
    return {"bool": False, "string": "", "float": 0.0}.get(shape.type, 0)


def plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
