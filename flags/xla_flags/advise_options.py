"""Why compiling with a dictionary of `compiler_options` fails, and what to write instead.

Invariant: there is a remark exactly if there is an error, and what it proposes passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xla_flags.compiler_options import CompilerOptionsResult, check_compiler_options
from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.history import history_of
from xla_flags.migrations import migrate
from xla_flags.nearest import nearest
from xla_flags.parser import parse
from xla_flags.schema import Catalog, FieldSpec
from xla_flags.spelling import flag_text
from xla_flags.subject import shown

_HINTS = {
    "bool": "a bool is True or False, or the text 'True' or 'False'",
    "int32": "an integer, or its decimal digits as text",
    "int64": "an integer, or its decimal digits as text",
    "float": "a float, or a number as text",
    "string": "text only",
    "enum": "the exact name of a member as text, or its number",
    "message": "nothing but '' (which clears it)",
}


def advise_options(result: CompilerOptionsResult, options: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    """The remark on the option that `result` fails for; none if it does not.

    Args:
      result: of `check_compiler_options(options)`.
      options: the dictionary.
    """
    if result.ok:
        return ()
    option = result.option
    if not isinstance(option, str) or option not in options:
        return (Diagnostic(Severity.ERROR, "bad-option", None, f"{result.exception}: {result.message}"),)
    value = options[option]
    field = result.catalog.fields.get(option)
    if field is None and option not in result.catalog.jax_options:
        return (_unknown(option, value, result.catalog),)
    return (_wrong_value(field, option, value, result),)


def _item(option: str, value: object) -> str:
    return f"{option!r}: {value!r}"


def _first_passing(items: Iterator[tuple[str, Any]], catalog: Catalog) -> str | None:
    for option, value in items:
        if check_compiler_options({option: value}, catalog).ok:
            return _item(option, value)
    return None


def _unknown(option: str, value: Any, catalog: Catalog) -> Diagnostic:
    name = option.lstrip("-").replace("-", "_").lower()
    flag = catalog.flags.get(name)
    why, hint = (
        f"there is no compile option {shown(option)!r}",
        "an option is named as the field, without dashes",
    )
    candidates = [name]
    if flag is not None and flag.field is not None and flag.field.name != name:
        why += f": {name} is a flag, the field it writes is {flag.field.name}"
        candidates = [flag.field.name]
    elif flag is not None and flag.field is None:
        hint = f"{name} is a flag for XLA_FLAGS only"
    elif name != option:
        why += ": options have no dashes" if option.startswith("-") else ""
    else:
        history = history_of(name)
        hint = f"it was a flag in {history.span}" if history is not None else hint
        candidates += _migrated(name, value) + [each for _, each in nearest(name, catalog.fields, 1)]
    fixed = _first_passing(_values(candidates, value, catalog), catalog)
    return Diagnostic(Severity.ERROR, "unknown-option", None, why, fixed, hint)


def _migrated(name: str, value: Any) -> list[str]:
    migration = migrate(name, str(value))
    text = (migration.text or "") if migration is not None else ""
    return [text.removeprefix("--").partition("=")[0]] if text else []


def _values(candidates: list[str], value: Any, catalog: Catalog) -> Iterator[tuple[str, Any]]:
    for name in candidates:
        if name in catalog.fields:
            yield name, value
            for guess in _guesses(catalog.fields[name], value, catalog):
                yield name, guess


def _guesses(field: FieldSpec, value: Any, catalog: Catalog) -> Iterator[Any]:
    """What a value may have been meant as: as a flag would read it, repaired if need be."""
    text = str(value)
    for spelled in (text, text.lower(), text.upper(), str(_as_member(field, text))):
        flag = catalog.flags.get(field.name)
        if flag is None or len(text) > 200:
            break
        result = parse(flag_text(field.name, spelled), catalog, files={})
        suggestion = next((each.suggestion for each in result.diagnostics if each.suggestion), None)
        for attempt in (result, parse(flag_text(field.name, suggestion or ""), catalog, files={})):
            if attempt.ok and field.name in attempt.plain:
                found = attempt.plain[field.name]
                yield ",".join(map(str, found)) if isinstance(found, list) else found
    if field.type == "string":
        yield text
    if field.type == "float" and isinstance(value, int):
        yield float(value)


def _as_member(field: FieldSpec, text: str) -> str:
    members = field.enum.numbers if field.enum is not None else {}
    return next((name for name in members if name.endswith("_" + text.upper())), text)


def _wrong_value(
    field: FieldSpec | None, option: str, value: Any, result: CompilerOptionsResult
) -> Diagnostic:
    if field is None:
        why = f"jax takes {option} for itself and refuses {value!r}"
        return Diagnostic(Severity.ERROR, "bad-option", None, why, None, str(result.message))
    hint = _HINTS.get(field.type)
    if field.enum is not None and hint is not None:
        hint += f": {', '.join(field.enum.numbers)}"
    if field.repeated and field.type != "message":
        hint = f"text with commas between the entries; each is {hint}"
    why = f"{option} refuses {shown(repr(value))}, of type {type(value).__name__}"
    fixed = _first_passing(
        ((option, each) for each in _guesses(field, value, result.catalog)), result.catalog
    )
    return Diagnostic(Severity.ERROR, "bad-option-value", None, why, fixed, hint)
