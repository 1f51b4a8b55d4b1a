"""What a given jaxlib knows: its flags, how each reads its value, and the DebugOptions fields they write.

Mirrors xla/debug_options_flags.cc as tables in `data/`, one per jaxlib. Invariant: a `Catalog` never
changes, and all that differs between jaxlibs is in it; code that parses asks for a kind or a field, never a
version.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xla_flags.errors import CatalogError, UnknownJaxlibError
from xla_flags.options import enum_class

DATA = Path(__file__).parent / "data"
"""Where the shipped catalogs are."""

NO_MEMBERS: Mapping[str, str] = {}


class FlagKind(enum.StrEnum):
    """How a flag's value is read. The rule of each kind is its setter in `setters*.py`."""

    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    STRING = "string"
    UPPER_STRING = "upper_string"
    """Any text; ASCII letters are turned into capitals."""
    ENUM = "enum"
    """The exact name of a member."""
    ENUM_ANY_CASE = "enum_any_case"
    """The name of a member in any case, or one of `FlagSpec.words`; `FlagSpec.prefix` may be left off."""
    WORD = "word"
    """One of `FlagSpec.words`, exactly."""
    WORD_ANY_CASE = "word_any_case"
    """One of `FlagSpec.words`, in any case."""
    ENUM_LIST = "enum_list"
    """Members separated by commas, in any case, replacing the list or, with `+` and `-`, editing it."""
    ASYNC_COLLECTIVES = "async_collectives"
    PASS_LIST = "pass_list"
    """Appends HLO passes; `pass:occurrence` and `@id` are checked."""
    COMMA_LIST = "comma_list"
    """Appends the pieces between commas, as they are."""
    TRIMMED_LIST = "trimmed_list"
    """Appends the pieces between commas, trimmed, leaving out empty ones."""
    BLANK_LIST = "blank_list"
    """Appends the words between white space."""
    WHOLE_LIST = "whole_list"
    """Appends the value as one entry."""
    MAP = "map"
    COLLECTIVE_FILTERS = "collective_filters"
    THUNK_ID_RANGES = "thunk_id_ranges"
    ANNOTATION_REGEXES = "annotation_regexes"
    DURATION = "duration"
    FUEL = "fuel"
    NO_EFFECT = "no_effect"
    """A bool that is checked and dropped."""
    DEPRECATED = "deprecated"
    """A bool that is checked and dropped, with a warning."""
    FALSE_ONLY = "false_only"
    """A bool that these builds refuse to set to true."""
    BOOL_AS_WORD = "bool_as_word"
    """A bool that writes the member `FlagSpec.words` gives for `true` or `false` into an enum field."""
    BOOL_AS_MEMBER = "bool_as_member"
    """A bool that adds the member `FlagSpec.words["true"]` to an enum list, or removes it."""

    @property
    def takes_bool(self) -> bool:
        """Whether the flag may stand without `=`, meaning true."""
        return self in BOOL_KINDS

    @property
    def writes(self) -> bool:
        """Whether the flag writes a field at all."""
        return self not in (FlagKind.FUEL, FlagKind.NO_EFFECT, FlagKind.DEPRECATED)

    @property
    def appends(self) -> bool:
        """Whether a repeated flag adds to what earlier ones wrote, and nothing takes it back."""
        return self in _APPENDING


BOOL_KINDS = frozenset(
    {
        FlagKind.BOOL,
        FlagKind.NO_EFFECT,
        FlagKind.DEPRECATED,
        FlagKind.FALSE_ONLY,
        FlagKind.BOOL_AS_WORD,
        FlagKind.BOOL_AS_MEMBER,
    }
)
_APPENDING = frozenset(
    {
        FlagKind.PASS_LIST,
        FlagKind.COMMA_LIST,
        FlagKind.TRIMMED_LIST,
        FlagKind.BLANK_LIST,
        FlagKind.WHOLE_LIST,
        FlagKind.COLLECTIVE_FILTERS,
        FlagKind.THUNK_ID_RANGES,
        FlagKind.ANNOTATION_REGEXES,
    }
)


class OptionRule(enum.StrEnum):
    """What a compiler option that jax takes for itself must be."""

    BYTES = "bytes"
    BOOL = "bool"
    INT32 = "int32"
    FLOAT = "float"
    EFFORT_LEVEL = "effort_level"
    """A member of jax's CompilerEffortLevel, by name or by number."""


@dataclass(frozen=True, slots=True, eq=False)
class EnumSpec:
    """A proto enum.

    Attributes:
      name: full name, such as `xla.DebugOptions.CommandBufferCmdType`.
      numbers: member -> number, in the order of declaration.
      names: number -> member.
    """

    name: str
    numbers: Mapping[str, int]
    names: Mapping[int, str] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        names: dict[int, str] = {}
        for name, number in self.numbers.items():
            names.setdefault(number, name)
        object.__setattr__(self, "names", names)

    @property
    def python_class(self) -> type[enum.StrEnum]:
        """The Python enum whose members these are."""
        return enum_class(self.name, tuple(self.numbers))


@dataclass(frozen=True, slots=True, eq=False)
class FieldSpec:
    """A field of DebugOptions.

    Attributes:
      name: the proto field's name; also its key in `compiler_options`.
      number: the proto field's number.
      type: the proto type's word: bool, int32, int64, float, string, enum or message.
      repeated: whether it holds many; true of maps too, as protobuf has it.
      is_map: whether it is a `map<string, string>`.
      default: in `CompileOptions()` of a process without flags. Enums as names, lists as lists.
      xla_default: in XLA itself, before `CompileOptions()` forces some fields.
      enum: the members, if `type` is enum.
    """

    name: str
    number: int
    type: str
    repeated: bool
    is_map: bool
    default: Any
    xla_default: Any
    enum: EnumSpec | None

    @property
    def forced(self) -> bool:
        """Whether jaxlib's `CompileOptions()` overwrites whatever the flags say."""
        return self.name in FORCED


FORCED = frozenset({"xla_cpu_enable_fast_min_max", "xla_gpu_enable_fast_min_max"})
"""Fields that jaxlib's `CompileOptions()` always sets to their `default`."""


@dataclass(frozen=True, slots=True, eq=False)
class FlagSpec:
    """A flag.

    Attributes:
      name: without dashes.
      kind: how its value is read.
      type: the type XLA prints for it: bool, int32, int64, float or string.
      default: the default XLA prints for it.
      field: the field it writes; None: none.
      words: value -> enum member, for the kinds that read words.
      prefix: what may be left off members' names; "": nothing.
      minimum: the least number accepted; None: no limit but the type's.
      presumed: True if this was not observed on the jaxlib itself but follows from its descriptors and from
        the nearest jaxlib that was.
    """

    name: str
    kind: FlagKind
    type: str
    default: str
    field: FieldSpec | None
    words: Mapping[str, str] = dataclasses.field(default_factory=lambda: NO_MEMBERS)
    prefix: str = ""
    minimum: int | None = None
    presumed: bool = False

    @property
    def enum(self) -> EnumSpec | None:
        """The members of the field it writes, if that is an enum."""
        return self.field.enum if self.field is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """All flags and fields of one jaxlib.

    Attributes:
      version: of jaxlib, such as `0.12.0.1`.
      flags: name -> flag, in the order of XLA's table (the order of `--help`).
      fields: name -> field, in the order of the field numbers.
      enums: full name -> enum, of all fields, and `xla.PrimitiveType`, which one flag reads.
      jax_options: compiler options that jax takes for itself -> what they must be.
      quirks: how compiler options differ: `positive_float_options` (only positive normal floats are taken),
        `numbers_as_int` (objects that are no Python number become integers).
      exact: False if this was derived for a version whose flags nobody recorded; see `FlagSpec.presumed`.
    """

    version: str
    flags: Mapping[str, FlagSpec]
    fields: Mapping[str, FieldSpec]
    enums: Mapping[str, EnumSpec]
    jax_options: Mapping[str, OptionRule]
    quirks: frozenset[str] = frozenset()
    exact: bool = True

    def __repr__(self) -> str:
        return f"Catalog({self.version!r}, {len(self.flags)} flags{'' if self.exact else ', presumed'})"

    @staticmethod
    def for_jaxlib(version: str) -> Catalog:
        """The shipped catalog of a jaxlib version.

        Raises:
          UnknownJaxlibError: none is shipped for exactly this version.
        """
        return _shipped(version)

    @staticmethod
    def installed() -> Catalog:
        """The catalog of the installed jaxlib: the shipped one, or one derived from its descriptors.

        No process is started and jaxlib is not imported.

        Raises:
          UnknownJaxlibError: no jaxlib is installed.
          CatalogError: its descriptors cannot be read.
        """
        from xla_flags.installed import installed_catalog

        return installed_catalog()

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Catalog:
        """A catalog from the form of the files in `data/` (see `generate.catalog_json`).

        Raises:
          CatalogError: it is not of that form.
        """
        try:
            return _from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CatalogError(f"not a catalog of XLA flags: {error!r}") from error


@functools.cache
def shipped_versions() -> tuple[str, ...]:
    """The jaxlib versions with a shipped catalog, oldest first."""
    found = [path.stem.removeprefix("catalog-") for path in DATA.glob("catalog-*.json")]
    return tuple(sorted(found, key=version_key))


def version_key(version: str) -> tuple[int, ...]:
    """Sorts versions as numbers; what follows a part's digits is ignored (`0.12.0.dev1` is 0.12.0.0)."""
    parts = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        parts.append(int(digits or 0))
    return tuple(parts)


@functools.cache
def _shipped(version: str) -> Catalog:
    if version not in shipped_versions():
        known = ", ".join(shipped_versions())
        raise UnknownJaxlibError(f"no flag catalog is shipped for jaxlib {version!r}; there are: {known}")
    return Catalog.from_json(json.loads((DATA / f"catalog-{version}.json").read_bytes()))


def _from_json(data: Mapping[str, Any]) -> Catalog:
    enums = {name: EnumSpec(name, numbers) for name, numbers in data["enums"].items()}
    fields = {}
    for name, number, type_, shape, default, *xla_default in data["fields"]:
        fields[name] = FieldSpec(
            name=name,
            number=number,
            type="enum" if type_ in enums else type_,
            repeated=shape != "one",
            is_map=shape == "map",
            default=default,
            xla_default=xla_default[0] if xla_default else default,
            enum=enums.get(type_),
        )
    flags = {}
    for name, kind, type_, default, target, *extra in data["flags"]:
        flags[name] = FlagSpec(
            name,
            FlagKind(kind),
            type_,
            default,
            fields[target] if target else None,
            **(extra[0] if extra else {}),
        )
    return Catalog(
        version=data["jaxlib"],
        flags=flags,
        fields=fields,
        enums=enums,
        jax_options={name: OptionRule(rule) for name, rule in data["jax_options"].items()},
        quirks=frozenset(data["quirks"]),
        exact=data.get("exact", True),
    )
