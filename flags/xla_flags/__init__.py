"""XLA_FLAGS, parsed and checked exactly as a given jaxlib would.

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib

# As typing.TYPE_CHECKING, without the time that importing typing takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xla_flags.advise import fixed_text as fixed_text
    from xla_flags.compiler_options import CompilerOptionsResult as CompilerOptionsResult
    from xla_flags.compiler_options import check_compiler_options as check_compiler_options
    from xla_flags.diagnostics import Diagnostic as Diagnostic
    from xla_flags.diagnostics import Severity as Severity
    from xla_flags.environ import check_environ as check_environ
    from xla_flags.environ import ensure as ensure
    from xla_flags.errors import AlreadyReadError as AlreadyReadError
    from xla_flags.errors import CatalogError as CatalogError
    from xla_flags.errors import ProcessWouldEndError as ProcessWouldEndError
    from xla_flags.errors import UnknownJaxlibError as UnknownJaxlibError
    from xla_flags.errors import XlaFlagsError as XlaFlagsError
    from xla_flags.history import FlagHistory as FlagHistory
    from xla_flags.history import history_of as history_of
    from xla_flags.merge import Flags as Flags
    from xla_flags.merge import Setting as Setting
    from xla_flags.options import CommandBufferCmdType as CommandBufferCmdType
    from xla_flags.options import CommandBufferUpdateMode as CommandBufferUpdateMode
    from xla_flags.options import DebugOptions as DebugOptions
    from xla_flags.parser import Assignment as Assignment
    from xla_flags.parser import Outcome as Outcome
    from xla_flags.parser import ParseResult as ParseResult
    from xla_flags.parser import parse as parse
    from xla_flags.rendering import render as render
    from xla_flags.schema import Catalog as Catalog
    from xla_flags.schema import EnumSpec as EnumSpec
    from xla_flags.schema import FieldSpec as FieldSpec
    from xla_flags.schema import FlagKind as FlagKind
    from xla_flags.schema import FlagSpec as FlagSpec
    from xla_flags.schema import shipped_versions as shipped_versions
    from xla_flags.tokens import Source as Source
    from xla_flags.tokens import Span as Span
    from xla_flags.tokens import Token as Token
    from xla_flags.tokens import tokenize as tokenize

# Public name -> the module that has it.
_HOME = {
    "AlreadyReadError": "errors",
    "Assignment": "parser",
    "Catalog": "schema",
    "CatalogError": "errors",
    "CommandBufferCmdType": "options",
    "CommandBufferUpdateMode": "options",
    "CompilerOptionsResult": "compiler_options",
    "DebugOptions": "options",
    "Diagnostic": "diagnostics",
    "EnumSpec": "schema",
    "FieldSpec": "schema",
    "FlagHistory": "history",
    "FlagKind": "schema",
    "FlagSpec": "schema",
    "Flags": "merge",
    "Outcome": "parser",
    "ParseResult": "parser",
    "ProcessWouldEndError": "errors",
    "Setting": "merge",
    "Severity": "diagnostics",
    "Source": "tokens",
    "Span": "tokens",
    "Token": "tokens",
    "UnknownJaxlibError": "errors",
    "XlaFlagsError": "errors",
    "check_compiler_options": "compiler_options",
    "check_environ": "environ",
    "ensure": "environ",
    "fixed_text": "advise",
    "history_of": "history",
    "parse": "parser",
    "render": "rendering",
    "shipped_versions": "schema",
    "tokenize": "tokens",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'xla_flags' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"xla_flags.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
