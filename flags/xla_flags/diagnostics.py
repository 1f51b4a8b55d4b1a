"""One remark about flags that a person can act on. Data only: `advise` decides which remarks there are.

Invariant: a Diagnostic never changes a verdict; the verdict is `ParseResult.outcome`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xla_flags.tokens import Span


class Severity(enum.StrEnum):
    """How much a remark matters."""

    ERROR = "error"
    """The process ends because of it."""
    WARNING = "warning"
    """The process goes on, but not as the text suggests: something is ignored or has no effect."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One remark.

    Attributes:
      severity: how much it matters.
      code: stable name in kebab case, such as `unknown-flag`.
      span: characters of `ParseResult.source.text` it is about; None: the whole value.
      message: one sentence without a final full stop.
      suggestion: what to write instead of the text under `span`; None: nothing better is known.
      hint: a further sentence that explains; None: there is none.
    """

    severity: Severity
    code: str
    span: Span | None
    message: str
    suggestion: str | None = None
    hint: str | None = None
