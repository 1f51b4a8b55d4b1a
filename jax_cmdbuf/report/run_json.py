"""A run's report as JSON, and back.

Invariant: ``read_run`` of what ``run_as_json`` wrote is an equal report. Within one version keys may be
added,
with a default, but none goes or changes its meaning; keys that are not known are passed over.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.report.run_model import RunReport

__all__ = ["SCHEMA", "VERSION", "load_run", "read_run", "run_as_dict", "run_as_json"]

SCHEMA = "jax_cmdbuf.run"
VERSION = 1


def run_as_dict(report: RunReport) -> dict[str, Any]:
    """The report as dictionaries, lists, strings and numbers: the fields of ``run_model``, by name."""
    return {"schema": SCHEMA, "version": VERSION, **_plain(report)}


def run_as_json(report: RunReport) -> str:
    """:func:`run_as_dict` as text: one line for each process and function."""
    data = run_as_dict(report)
    lines = []
    for key, value in data.items():
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        else:
            text = json.dumps(value)
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load_run(path: str | Path) -> RunReport:
    """The report in a file.

    Raises:
      InputError: the file cannot be read, or is not a whole report of a version that is known here.
    """
    try:
        text = Path(path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"cannot read {path}: {reason or error}") from error
    return read_run(text, str(path))


def read_run(text: str, source: str) -> RunReport:
    """The report in a text.

    Args:
      text: JSON.
      source: what to call it in errors.

    Raises:
      InputError: it is not a whole report of a version that is known here.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{source} is no report of a run, or was cut off: it is not JSON ({error})"
        ) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise InputError(
            f"{source} is no report of a run: write one with `jax-cmdbuf run --format=json --output`"
        )
    version = data.get("version")
    if version != VERSION:
        raise InputError(
            f"{source} has version {version!r} of a run's report; version {VERSION} is known here"
        )
    try:
        report: RunReport = _read(RunReport, data, "")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is a damaged report of a run: {error}") from error
    known = {each.index for each in report.processes}
    if not known or any(each.process not in known for each in report.functions):
        raise InputError(
            f"{source} is a damaged report of a run: it has functions of a process that is not in it"
        )
    return report


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """(name, type, whether it may be missing) of each field."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (each.name, hints[each.name], each.default is not dataclasses.MISSING)
        for each in dataclasses.fields(kind)
    )


def _read(kind: Any, value: Any, where: str) -> Any:
    """``value`` as ``kind``: a dataclass of ``run_model``, or the type of one of its fields."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):  # X | None
        return None if value is None else _read(arguments[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where} is no list")
        return tuple(_read(arguments[0], each, f"{where}[{n}]") for n, each in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is no object")
        return {key: _read(arguments[1], each, f"{where}.{key}") for key, each in value.items()}
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{where or 'the whole'} is no object")
        return _read_fields(kind, value, where)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where} is no {kind.__name__}")
    return value


def _read_fields(kind: Any, value: dict[str, Any], where: str) -> Any:
    found = {}
    for name, hint, is_optional in _fields(kind):
        if name in value:
            found[name] = _read(hint, value[name], f"{where}.{name}" if where else name)
        elif not is_optional:
            raise ValueError(f"{where or 'it'} has no {name}")
    return kind(**found)
