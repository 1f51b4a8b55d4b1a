from __future__ import annotations

import dataclasses

import pytest

from xla_flags import Diagnostic, Severity, Span


def test_a_diagnostic_is_frozen_data_that_prints_as_text() -> None:
    remark = Diagnostic(Severity.ERROR, "unknown-flag", Span(0, 5), "no such flag", suggestion="--a")
    assert remark == dataclasses.replace(remark)
    assert f"{remark.severity}" == "error"
    with pytest.raises(dataclasses.FrozenInstanceError):
        remark.code = "other"  # type: ignore[misc]
