"""The worker's ``XLA_FLAGS``, checked before XLA sees them: XLA would end the process over a wrong one.

Invariant: the verdict is ``xla_flags``'s for the installed jaxlib; where that cannot tell, the flags pass
  and XLA
decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from jax_cmdbuf.errors import InputError
from xla_flags.diagnostics import Diagnostic, Severity
from xla_flags.errors import XlaFlagsError
from xla_flags.parser import ParseResult, parse
from xla_flags.schema import Catalog

__all__ = ["CheckedFlags", "check_flags"]


@dataclass(frozen=True, slots=True)
class CheckedFlags:
    """Flags that XLA accepts.

    Attributes:
      text: the variable's value.
      cuda_data_dir: value of ``--xla_gpu_cuda_data_dir``, or None.
      notes: what XLA will silently not do with them, one sentence each.
    """

    text: str
    cuda_data_dir: str | None = None
    notes: tuple[str, ...] = ()


def check_flags(text: str) -> CheckedFlags:
    """Checks a value of ``XLA_FLAGS``.

    Raises:
      InputError: XLA would end the process; the sentence has its message and what to write instead.
    """
    if not text.strip():
        return CheckedFlags(text)
    try:
        result = parse(text, Catalog.installed())
    except XlaFlagsError:
        return CheckedFlags(text)  # a jaxlib that xla_flags cannot read: XLA itself decides
    if not result.ok:
        raise InputError(f"XLA refuses the flags: {_refusal(result)}")
    data_dir = result.plain.get("xla_gpu_cuda_data_dir")
    notes = tuple(
        f"XLA_FLAGS: {_spelled(each)}" for each in result.diagnostics if each.severity is Severity.WARNING
    )
    return CheckedFlags(text, str(data_dir) if data_dir else None, notes)


def _refusal(result: ParseResult) -> str:
    errors = [each for each in result.diagnostics if each.severity is Severity.ERROR]
    own = _spelled(errors[0]) if errors else ""
    message = " ".join((result.message or "").split())
    return f"{message} ({own})" if own and own not in message else message or own


def _spelled(diagnostic: Diagnostic) -> str:
    text = diagnostic.message
    if diagnostic.suggestion is not None:
        text += f"; write {diagnostic.suggestion}" if diagnostic.suggestion else "; leave it out"
    return text
