"""XLA's DebugOptions as one value per field, and the enums that command buffers are steered with.

Mirrors `DebugOptions` in xla/xla.proto. Invariant: a view never changes; a field no flag wrote reads as the
default that a fresh process of that jaxlib has.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xla_flags.schema import Catalog, FieldSpec
    from xla_flags.tokens import Token


class CommandBufferUpdateMode(enum.StrEnum):
    """When a command buffer's recorded commands are updated (`DebugOptions.CommandBufferUpdateMode`).

    jaxlib 0.10.2 has the first three, later ones the first and the last two, under the same numbers.
    """

    ALWAYS_UPDATE = "ALWAYS_UPDATE"
    NEVER_UPDATE = "NEVER_UPDATE"
    CAPTURE_CMD_NEVER_UPDATE = "CAPTURE_CMD_NEVER_UPDATE"
    SKIP_TEMP = "SKIP_TEMP"
    SKIP_PROFILED = "SKIP_PROFILED"


class CommandBufferCmdType(enum.StrEnum):
    """What may be recorded into a command buffer (`DebugOptions.CommandBufferCmdType`)."""

    INVALID = "INVALID"
    FUSION = "FUSION"
    CUBLAS = "CUBLAS"
    CUDNN = "CUDNN"
    COLLECTIVES = "COLLECTIVES"
    CONDITIONAL = "CONDITIONAL"
    WHILE = "WHILE"
    CUSTOM_CALL = "CUSTOM_CALL"
    CUBLASLT = "CUBLASLT"
    DYNAMIC_SLICE_FUSION = "DYNAMIC_SLICE_FUSION"
    CONVOLUTION = "CONVOLUTION"
    HOST_EXECUTE = "HOST_EXECUTE"
    COLLECTIVES_KERNEL = "COLLECTIVES_KERNEL"


class CommandBufferSchedulingMode(enum.StrEnum):
    """In which order commands of a command buffer may run (`DebugOptions.CommandBufferSchedulingMode`)."""

    SERIALIZE = "SERIALIZE"
    CONCURRENT = "CONCURRENT"
    LHS = "LHS"
    CONCURRENT_REGIONS = "CONCURRENT_REGIONS"


_NAMED: Mapping[str, type[enum.StrEnum]] = {
    "xla.DebugOptions.CommandBufferUpdateMode": CommandBufferUpdateMode,
    "xla.DebugOptions.CommandBufferCmdType": CommandBufferCmdType,
    "xla.DebugOptions.CommandBufferSchedulingMode": CommandBufferSchedulingMode,
}


def enum_class(full_name: str, members: tuple[str, ...]) -> type[enum.StrEnum]:
    """The Python enum for a proto enum; each member's value is its name, its number is in the catalog.

    Args:
      full_name: such as `xla.DebugOptions.CommandBufferUpdateMode`.
      members: the names that a catalog lists. A class above serves every jaxlib whose members it has.
    """
    named = _NAMED.get(full_name)
    if named is not None and named.__members__.keys() >= set(members):
        return named
    return _derived(full_name, members)


@functools.cache
def _derived(full_name: str, members: tuple[str, ...]) -> type[enum.StrEnum]:
    functional: Any = enum.StrEnum
    derived: type[enum.StrEnum] = functional(full_name.rpartition(".")[2], [(name, name) for name in members])
    return derived


class DebugOptions:
    """A frozen view of all fields of DebugOptions, read as attributes: `options.xla_gpu_autotune_level`.

    bool, int, float and str fields read as such; enums as members of a `StrEnum` (an int where the number has
    no name); repeated fields as tuples; maps and messages as read-only mappings. Any other name is an
    `AttributeError`. Fields, not flags: `xla_fuel` has none, and some flags write a field of another name.
    """

    __slots__ = ("_catalog", "_tokens", "_values")

    def __init__(
        self,
        catalog: Catalog,
        values: Mapping[str, Any],
        tokens: Mapping[str, Token] | None = None,
    ) -> None:
        """Builds the view.

        Args:
          catalog: the jaxlib whose fields and defaults these are.
          values: fields that were written -> value in the plain form (`ParseResult.values_as_written`).
          tokens: fields -> the token that wrote them last.
        """
        object.__setattr__(self, "_catalog", catalog)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_tokens", tokens or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        field = self._catalog.fields.get(name)
        if field is None:
            raise AttributeError(f"jaxlib {self._catalog.version} has no DebugOptions field {name!r}")
        return typed(field, self._values.get(name, field.default))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"DebugOptions is read-only; cannot set {name}")

    def __getitem__(self, name: str) -> Any:
        """As attribute access; an unknown name is a `KeyError`."""
        if name not in self._catalog.fields:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._catalog.fields

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._catalog.fields]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DebugOptions):
            return NotImplemented
        mine, theirs = self.changed(), other.changed()
        return self._catalog.version == other._catalog.version and mine == theirs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"DebugOptions(jaxlib={self._catalog.version!r}{', ' if changed else ''}{changed})"

    @property
    def catalog(self) -> Catalog:
        """The jaxlib whose options these are."""
        catalog: Catalog = self._catalog
        return catalog

    def token_of(self, name: str) -> Token | None:
        """The token that wrote a field last; None: it has its default (or jaxlib forces it)."""
        token: Token | None = self._tokens.get(name)
        return token

    def changed(self) -> dict[str, Any]:
        """Fields whose value is not the default, typed as attribute access gives them."""
        fields = self._catalog.fields
        return {
            name: typed(fields[name], value)
            for name, value in self._values.items()
            if value != fields[name].default
        }


def typed(field: FieldSpec, value: Any) -> Any:
    """A value in plain form (enum names as str, lists, dicts) as Python users want it."""
    if field.is_map:
        return MappingProxyType(value)
    if field.repeated:
        return tuple(_one(field, each) for each in value)
    return _one(field, value)


def _one(field: FieldSpec, value: Any) -> Any:
    if field.enum is not None and isinstance(value, str):
        return field.enum.python_class(value)
    if isinstance(value, dict):
        return MappingProxyType(
            {key: tuple(each) if isinstance(each, list) else each for key, each in value.items()}
        )
    return value
