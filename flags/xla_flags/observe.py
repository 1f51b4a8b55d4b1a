"""The exact catalog of an installed jaxlib, found by asking it: what regenerates the files in `data/`.

Starts from what `installed.derive` presumes and puts each presumption to jaxlib in a process that may end.
Invariant: what comes out was observed, except for the words of special flags, which `kinds` knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xla_flags.descriptors import FieldType, MessageType, Types, decode, read_file
from xla_flags.generate import DEBUG_OPTIONS, FieldFact, OptionFacts, catalog_json, field_shapes
from xla_flags.installed import (
    derive,
    embedded_files,
    installed_library,
    installed_version,
    nearest_version,
    read_types,
)
from xla_flags.kinds import FieldShape
from xla_flags.probe import Answer, Probe
from xla_flags.probe import probe as start_probe
from xla_flags.schema import FORCED, Catalog, FlagKind, FlagSpec

COMPILE_OPTIONS = "xla/pjrt/proto/compile_options.proto"

# A row of the table XLA prints, as far as its log holds it.
_ROW = re.compile(r"^\t--(\w+)=(.*?)\s*\t(bool|int32|int64|float|string)\t", re.MULTILINE)


def zero(shape: FieldShape) -> Any:
    """What a field holds that is absent from a serialized message."""
    if shape.is_map or (shape.type == "message" and not shape.repeated):
        return {}
    if shape.repeated:
        return []
    if shape.type == "enum":
        return shape.members[0] if shape.members else 0
    return {"bool": False, "string": "", "float": 0.0, "double": 0.0}.get(shape.type, 0)


class OptionsReader:
    """Reads the DebugOptions in a probe's answers, by the descriptors of the library that gave them."""

    def __init__(self, library: Path) -> None:
        self.types = read_types(library)
        self.shapes = {name: shape for name, (_, shape) in field_shapes(self.types).items()}
        wrapper = Types({**self.types.messages}, {**self.types.enums})
        for data in embedded_files(library, [COMPILE_OPTIONS]):
            read_file(data, wrapper)
        self._all = wrapper
        self._root: MessageType = next(
            each for name, each in wrapper.messages.items() if name.endswith(".CompileOptionsProto")
        )

    def read(self, answer: Answer) -> dict[str, Any]:
        """Every field -> value in the form of `ParseResult.plain`; the answer must have options.

        Raises:
          CatalogError: the message cannot be read, as when a string in it is not UTF-8.
        """
        assert answer.options is not None, "the process ended before it had options"
        whole = decode(answer.options, self._root, self._all)
        present = whole.get("executable_build_options", {}).get("debug_options", {})
        options = {name: present.get(name, zero(shape)) for name, shape in self.shapes.items()}
        for spec in self.types.messages[DEBUG_OPTIONS].fields.values():
            value = options[spec.name]
            for each in value if spec.repeated and isinstance(value, list) else [value]:
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


class Observer:
    """Puts the presumptions of a derived catalog to the jaxlib itself."""

    def __init__(self, probe: Probe, library: Path, version: str) -> None:
        self.probe = probe
        self.version = version
        self.nearest = Catalog.for_jaxlib(nearest_version(version))
        self.presumed = Catalog.from_json(derive(version, library, self.nearest))
        self.reader = OptionsReader(library)
        self.defaults = self.reader.read(probe.ask(None))
        usage = probe.ask(b"--help").fatal or ""
        self.printed = {name: (type_, default.strip('"')) for name, default, type_ in _ROW.findall(usage)}

    def ask(self, name: str, value: str) -> dict[str, Any] | None:
        """Fields that a flag changes; None: the flag or the value is refused."""
        answer = self.probe.ask(f"--{name}='{value}'".encode())
        if answer.options is None:
            return None
        options = self.reader.read(answer)
        return {field: each for field, each in options.items() if each != self.defaults[field]}

    def exists(self, name: str) -> bool:
        """Whether there is a flag of this name."""
        answer = self.probe.ask(f"--{name}='\x01'".encode())
        return answer.options is not None or not (answer.fatal or "").startswith("Unknown flag")

    def catalog(self) -> dict[str, Any]:
        """The whole catalog, in the form of `data/`."""
        presumed = self.presumed
        candidates = [*presumed.flags, *(name for name in presumed.fields if name not in presumed.flags)]
        names = [name for name in candidates if self.exists(name)]
        rows = [self.flag_row(name) for name in names]
        fields = [
            FieldFact(
                field.name,
                field.number,
                field.type,
                field.repeated,
                field.is_map,
                field.enum.name if field.enum is not None else "",
                self.defaults[field.name],
                self._xla_default(field.name),
            )
            for field in presumed.fields.values()
        ]
        options = OptionFacts(self.nearest.jax_options, self.nearest.quirks)
        data = catalog_json(self.version, [], fields, self.reader.types.enums, options)
        return {**data, "flags": rows}

    def _xla_default(self, field: str) -> Any:
        """XLA's own default of a field that jaxlib forces, which only the printed table shows."""
        if field in FORCED and field in self.printed:
            return self.printed[field][1] == "true"
        return self.defaults[field]

    def flag_row(self, name: str) -> list[Any]:
        """A flag's row of the catalog, each part of it asked for where that is possible."""
        flag = self.presumed.flags.get(name)
        if flag is None:
            flag = FlagSpec(name, FlagKind.STRING, "string", "", self.presumed.fields.get(name))
        kind, words, target = flag.kind, dict(flag.words), flag.field.name if flag.field is not None else ""
        if kind.takes_bool:
            kind, words, target = self._bool(flag)
        elif kind in (FlagKind.ENUM, FlagKind.ENUM_ANY_CASE, FlagKind.WORD, FlagKind.WORD_ANY_CASE):
            kind = self._enum(flag)
        elif kind in (FlagKind.PASS_LIST, FlagKind.COMMA_LIST):
            kind = FlagKind.COMMA_LIST if self.ask(name, "@x") else FlagKind.PASS_LIST
        elif kind in (FlagKind.STRING, FlagKind.UPPER_STRING):
            changed = self.ask(name, "a b") or {}
            kind = FlagKind.UPPER_STRING if "A B" in changed.values() else FlagKind.STRING
        extra: dict[str, Any] = {"words": words} if words else {}
        if flag.prefix:
            extra["prefix"] = flag.prefix
        if kind in (FlagKind.INT32, FlagKind.INT64) and (minimum := self._minimum(name)) is not None:
            extra["minimum"] = minimum
        type_, default = self._printed(flag)
        row = [name, str(kind), type_, default, target]
        return [*row, extra] if extra else row

    def _bool(self, flag: FlagSpec) -> tuple[FlagKind, dict[str, str], str]:
        """Kind, words and field of a flag that takes true and false."""
        words, target = dict(flag.words), flag.field.name if flag.field is not None else ""
        on, off = self.ask(flag.name, "true"), self.ask(flag.name, "false")
        if on is None and off is not None:
            return FlagKind.FALSE_ONLY, {}, target
        changed = {**(off or {}), **(on or {})}
        if not changed and flag.name not in FORCED:
            warns = any(severity == "W" for severity, _ in self.probe.ask(f"--{flag.name}".encode()).log)
            return (FlagKind.DEPRECATED if warns else FlagKind.NO_EFFECT), {}, ""
        for field, value in changed.items():
            if isinstance(value, bool):
                return FlagKind.BOOL, {}, field
            if isinstance(value, str):
                both = [(each or {}).get(field, self.defaults[field]) for each in (on, off)]
                return FlagKind.BOOL_AS_WORD, dict(zip(("true", "false"), both, strict=True)), field
        return flag.kind, words, target

    def _enum(self, flag: FlagSpec) -> FlagKind:
        """How a flag reads the one member it takes."""
        assert flag.enum is not None
        default = self.defaults[flag.field.name] if flag.field is not None else ""
        member = next((each for each in flag.enum.numbers if each != default), default)
        if self.ask(flag.name, member):
            return FlagKind.ENUM_ANY_CASE if self.ask(flag.name, member.lower()) else FlagKind.ENUM
        for word, spelled in flag.words.items():
            if spelled != default and self.ask(flag.name, word):
                upper = self.ask(flag.name, word.upper())
                return FlagKind.WORD_ANY_CASE if upper else FlagKind.WORD
        return flag.kind

    def _minimum(self, name: str) -> int | None:
        """The least number a flag takes, if it refuses negative ones."""
        if self.ask(name, "-1") is not None:
            return None
        return next((number for number in (0, 1, 2) if self.ask(name, str(number)) is not None), None)

    def _printed(self, flag: FlagSpec) -> tuple[str, str]:
        """Type and default as XLA prints them; beyond the part of its table that it shows, as it would."""
        if flag.name in self.printed:
            return self.printed[flag.name]
        known = self.nearest.flags.get(flag.name)
        field = flag.field
        if known is not None and (
            field is None or known.field is None or known.field.default == self.defaults.get(field.name)
        ):
            return flag.type, known.default
        return flag.type, printed_default(flag, self.defaults[field.name] if field is not None else "")


def printed_default(flag: FlagSpec, value: Any) -> str:
    """A field's default as XLA prints it for a flag that writes it."""
    if flag.kind is FlagKind.BOOL_AS_MEMBER:
        value = flag.words["true"] in value
    elif flag.kind is FlagKind.BOOL_AS_WORD:
        value = value == flag.words["true"]
    elif flag.kind in (FlagKind.WORD, FlagKind.WORD_ANY_CASE):
        value = next((word for word, member in flag.words.items() if member == value), value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format(value, "g")
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ""
    return str(value)


def observe(probe: Probe, library: Path, version: str) -> dict[str, Any]:
    """The catalog of a jaxlib, in the form of `data/`, from what it does.

    Args:
      probe: of that jaxlib; it is asked about a thousand questions.
      library: its shared object.
      version: of that jaxlib.

    Raises:
      CatalogError: its descriptors cannot be read.
    """
    return Observer(probe, library, version).catalog()


def observe_installed() -> dict[str, Any]:
    """The same for the jaxlib that is installed here, in some twenty seconds.

    Raises:
      UnknownJaxlibError: no jaxlib is installed.
      CatalogError: its descriptors cannot be read.
    """
    version, library = installed_version(), installed_library()
    with start_probe() as probe:
        return observe(probe, library, version)
