"""What `jax.jit(..., compiler_options={...})` does with its dictionary: not the rules of XLA_FLAGS.

Mirrors `CompileOptions::ApplyOption` in xla/pjrt/pjrt_executable.cc. Invariant: options are applied in order
on top of what the flags gave, and the first error is the only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xla_flags.options import DebugOptions
from xla_flags.parser import ParseResult
from xla_flags.schema import Catalog


@dataclass(frozen=True, slots=True)
class CompilerOptionsResult:
    """What compiling with a dictionary of options does.

    Attributes:
      catalog: the jaxlib.
      outcome: `ok` or `error`.
      exception: the name of the exception's class: `JaxRuntimeError` or `TypeError`; None if ok.
      message: its first line; None if ok.
      option: the key it is about; None if ok or about none.
      plain: fields that flags or options wrote -> value, in the form of `ParseResult.plain`.
    """

    catalog: Catalog
    outcome: str
    exception: str | None
    message: str | None
    option: str | None
    plain: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether compilation goes on."""
        return self.outcome == "ok"

    @property
    def non_default(self) -> dict[str, Any] | None:
        """Fields that differ from XLA's own defaults, in JSON's form; None after an error."""
        raise NotImplementedError

    @property
    def debug_options(self) -> DebugOptions:
        """The options the compiler receives.

        Raises:
          ProcessWouldEndError: there is an error.
        """
        raise NotImplementedError


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
    raise NotImplementedError
