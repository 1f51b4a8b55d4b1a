"""Assertions of the shared suites explain themselves as those of test modules do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.stream_executor.conformance", "tests.stream_executor.allocator_machine")
