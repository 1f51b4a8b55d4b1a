"""What `jax.jit(..., compiler_options={...})` does with its dictionary: not the rules of XLA_FLAGS.

Mirrors jax/_src/compiler.py and `CompileOptions::ApplyOption` in xla/pjrt/pjrt_executable.cc. Invariant:
options are applied in order on top of what the flags gave, and the first error is the only one.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from xla_flags.errors import ProcessWouldEndError
from xla_flags.literals import INT32_MAX, INT64_MAX, parse_float32, parse_int, to_float32
from xla_flags.options import DebugOptions
from xla_flags.parser import ParseResult, json_value
from xla_flags.schema import Catalog, FieldSpec, FlagKind, OptionRule
from xla_flags.setters_lists import pass_filter_error

Value: TypeAlias = str | bool | int | float
"""What C++ receives: its string, bool, int64 or double."""

JAX_WRITES: Mapping[str, Any] = {"xla_detailed_logging": False}
"""What jax itself writes for every small module, after the flags and before the options."""

_INCOMPATIBLE = "(): incompatible function arguments. The following argument types are supported:"
_EFFORT_LEVELS = (0, 9, 19, 29, 39, "UNKNOWN", "O0", "O1", "O2", "O3")
_FLOAT32_MIN, _FLOAT32_MAX = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127


@dataclass(frozen=True, slots=True)
class CompilerOptionsResult:
    """What compiling with a dictionary of options does.

    Attributes:
      catalog: the jaxlib.
      outcome: `ok` or `error`.
      exception: the name of the exception's class, such as `JaxRuntimeError` or `TypeError`; None if ok.
      message: its first line; None if ok.
      option: the key it is about; None if ok or about none.
      plain: fields that flags, jax or options wrote -> value, in the form of `ParseResult.plain`.
    """

    catalog: Catalog
    outcome: str
    exception: str | None
    message: str | None
    option: Any
    plain: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether compilation goes on."""
        return self.outcome == "ok"

    @property
    def non_default(self) -> dict[str, Any] | None:
        """Fields that differ from XLA's own defaults, in JSON's form; None after an error.

        As dumps of a module show them: lists sorted, and those that were emptied left out.
        """
        if not self.ok:
            return None
        fields = self.catalog.fields
        values = {
            field.name: field.default for field in fields.values() if field.default != field.xla_default
        }
        values.update(self.plain)
        shown = {name: value for name, value in values.items() if value != fields[name].xla_default}
        return {name: _shown(fields[name], value) for name, value in shown.items() if value not in ([], {})}

    @property
    def debug_options(self) -> DebugOptions:
        """The options the compiler receives.

        Raises:
          ProcessWouldEndError: there is an error.
        """
        if not self.ok:
            raise ProcessWouldEndError(f"compilation would fail: {self.exception}: {self.message}")
        return DebugOptions(self.catalog, self.plain)


def _shown(field: FieldSpec, value: Any) -> Any:
    if field.repeated and not field.is_map:
        return sorted(value, key=str)
    return json_value(value)


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """An option ends the compilation: the class and the text of what is raised."""

    def __init__(self, exception: str, text: str, option: Any) -> None:
        super().__init__(text)
        self.exception = exception
        self.text = text
        self.option = option


def check_compiler_options(
    options: Mapping[str, Any], catalog: Catalog | None = None, base: ParseResult | None = None
) -> CompilerOptionsResult:
    """Says what compiling with `compiler_options=options` does.

    Args:
      options: as given to `jax.jit` or `Lowered.compile`.
      catalog: the jaxlib; None: that of `base`, else the installed one.
      base: what `XLA_FLAGS` gave, which must be ok; None: no flags.

    Raises:
      ProcessWouldEndError: with `base`, the process would have ended before.
      UnknownJaxlibError: neither catalog nor `base` was given and no jaxlib is installed.
    """
    if base is not None and not base.ok:
        raise ProcessWouldEndError(f"the process would have ended before: {base.message}")
    if catalog is None:
        catalog = base.catalog if base is not None else Catalog.installed()
    plain = copy.deepcopy(dict(base.plain)) if base is not None else {}
    plain |= {name: value for name, value in JAX_WRITES.items() if name in catalog.fields}
    try:
        for option, value in _for_xla(options, catalog):
            _apply(option, value, catalog, plain)
    except _Refused as refused:
        first_line = refused.text.split("\n")[0]
        return CompilerOptionsResult(catalog, "error", refused.exception, first_line, refused.option, {})
    return CompilerOptionsResult(catalog, "ok", None, None, None, plain)


def _for_xla(options: Mapping[str, Any], catalog: Catalog) -> list[tuple[str, Value]]:
    """The options that jax hands on to XLA, after those it takes for itself."""
    for option, value in options.items():
        try:
            hash(value)
        except TypeError as error:
            raise _Refused("TypeError", str(error), option) from None
    own = catalog.jax_options
    for option, rule in own.items():
        if option in options and rule is not OptionRule.BYTES:
            _check_own(option, options[option], rule)
    handed = [(option, value) for option, value in options.items() if option not in own]
    result = []
    for option, value in handed:
        converted = _as_cpp(value, catalog)
        if converted is None or not isinstance(option, str):
            raise _Refused("TypeError", _INCOMPATIBLE, option)
        result.append((option, converted))
    for option, rule in own.items():
        if option in options and rule is OptionRule.BYTES:
            _check_own(option, options[option], rule)
    return result


def _check_own(option: str, value: Any, rule: OptionRule) -> None:
    """Checks an option that jax takes for itself as the attribute it is assigned to does."""
    if rule is OptionRule.EFFORT_LEVEL:
        if value not in _EFFORT_LEVELS:
            raise _Refused("ValueError", f"{value!r} is not a valid CompilerEffortLevel", option)
        return
    good = {
        OptionRule.BYTES: isinstance(value, bytes),
        OptionRule.BOOL: isinstance(value, bool),
        OptionRule.INT32: isinstance(value, int) and -INT32_MAX - 1 <= value <= INT32_MAX,
        OptionRule.FLOAT: isinstance(value, int | float),
    }[rule]
    # jax leaves a profile of None out.
    if not good and not (rule is OptionRule.BYTES and value is None):
        raise _Refused("TypeError", _INCOMPATIBLE, option)


def _as_cpp(value: Any, catalog: Catalog) -> Value | None:
    """What the binding makes of a Python value; None: it accepts none of that type."""
    if isinstance(value, str):
        return value if _is_utf8(value) else None
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float):
        value = _as_number(value, catalog)
        if value is None:
            return None
    if isinstance(value, int) and not -INT64_MAX - 1 <= value <= INT64_MAX:
        try:
            return float(value)
        except OverflowError:
            return None
    return int(value) if isinstance(value, int) else float(value)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_number(value: Any, catalog: Catalog) -> int | float | None:
    """What other numbers, such as NumPy's, become."""
    try:
        if "numbers_as_int" in catalog.quirks:
            return int(value) if not isinstance(value, bytearray | memoryview) else None
        return operator.index(value) if hasattr(value, "__index__") else float(value.__float__())
    except (TypeError, ValueError, AttributeError, OverflowError):
        return None


def _apply(option: str, value: Value, catalog: Catalog, plain: dict[str, Any]) -> None:
    """Writes one option into `plain`."""
    field = catalog.fields.get(option)
    if field is None:
        raise _Refused("JaxRuntimeError", f"INVALID_ARGUMENT: No such compile option: '{option}'", option)
    if field.repeated:
        plain[option] = _repeated(field, value, catalog)
    else:
        plain[option] = _single(field, value, catalog)
    flag = catalog.flags.get(option)
    if flag is not None and flag.kind is FlagKind.PASS_LIST:
        for entry in plain[option]:
            if error := pass_filter_error(entry):
                raise _Refused("JaxRuntimeError", f"INVALID_ARGUMENT: {error}", option)


def _repeated(field: FieldSpec, value: Value, catalog: Catalog) -> Any:
    if field.type == "message":
        if value != "":
            # Split as any list; the first piece is the one that is refused.
            raise _wrong_type(field, value.partition(",")[0] if isinstance(value, str) else value)
        return {} if field.is_map else []
    if isinstance(value, str):
        return [_from_text(field, piece) for piece in value.split(",")] if value else []
    return [_single(field, value, catalog)]


def _single(field: FieldSpec, value: Value, catalog: Catalog) -> Any:
    if isinstance(value, str):
        return _from_text(field, value)
    if isinstance(value, bool):
        if field.type == "bool":
            return value
    elif isinstance(value, int):
        limit = {"int32": INT32_MAX, "int64": INT64_MAX}.get(field.type)
        if field.enum is not None:
            # Stored as a C++ int, whatever there is above 32 bits being lost.
            number = (value + INT32_MAX + 1) % (1 << 32) - INT32_MAX - 1
            return field.enum.names.get(number, number)
        if limit is not None and -limit - 1 <= value <= limit:
            return value
    elif field.type == "float":
        least = _FLOAT32_MIN if "positive_float_options" in catalog.quirks else -_FLOAT32_MAX
        if least <= value <= _FLOAT32_MAX:
            return to_float32(value)
    raise _wrong_type(field, value)


def _from_text(field: FieldSpec, text: str) -> Any:
    parsed: Any = None
    match field.type:
        case "string":
            parsed = text
        case "bool":
            parsed = {"True": True, "False": False}.get(text)
        case "int32" | "int64":
            parsed = parse_int(text, INT32_MAX if field.type == "int32" else INT64_MAX)
        case "float":
            parsed = parse_float32(text)
        case "enum":
            parsed = _member(field, text)
    if parsed is None:
        raise _wrong_type(field, text)
    return parsed


def _member(field: FieldSpec, text: str) -> str | int | None:
    """An enum's member by exact name or by number; numbers without a name stay numbers."""
    assert field.enum is not None
    if text in field.enum.numbers:
        return text
    number = parse_int(text, INT32_MAX)
    return None if number is None else field.enum.names.get(number, number)


def _wrong_type(field: FieldSpec, value: Value) -> _Refused:
    if isinstance(value, bool):
        printed = str(int(value))
    elif isinstance(value, float):
        printed = format(value, ".6g")
    else:
        printed = str(value)
    text = f"While setting option {field.name}, '{printed}' is not a valid {field.type} value."
    return _Refused("JaxRuntimeError", f"INVALID_ARGUMENT: {text}", field.name)
