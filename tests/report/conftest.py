"""The hand-written program and its plan."""

from __future__ import annotations

import pytest

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.report.model import Plan
from tests.report.programs import a_program, plan_of


@pytest.fixture
def executable() -> Executable:
    return a_program()


@pytest.fixture
def plan(executable: Executable) -> Plan:
    return plan_of(executable)
