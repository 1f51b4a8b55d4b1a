"""The exceptions: one tree, as drawn, and XLA's codes."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from jax_cmdbuf import errors
from jax_cmdbuf.errors import CmdbufError, ContainerError, InputError, StatusCode, StatusError

TREE = {
    name: found
    for name, found in vars(errors).items()
    if inspect.isclass(found) and issubclass(found, Exception)
}


def test_the_drawing_is_the_tree():
    drawn = []
    parents = []
    for indent, name in re.findall(r"^([│├└─ ]*)(\w+Error)\b", inspect.getdoc(errors) or "", re.MULTILINE):
        depth = len(indent) // 4
        parents[depth:] = [name]
        drawn.append((name, parents[depth - 1] if depth else "Exception"))
    assert sorted(drawn) == sorted((name, found.__base__.__name__) for name, found in TREE.items())


def test_every_exception_is_exported():
    assert set(errors.__all__) == {*TREE, "StatusCode"}


def test_one_except_clause_catches_them_all():
    assert all(issubclass(found, CmdbufError) for found in TREE.values())
    with pytest.raises(InputError, match="truncated"):
        raise ContainerError("truncated")


def test_status_codes_have_the_numbers_of_absl():
    assert {code.name: code.value for code in StatusCode}.items() <= {
        "CANCELLED": 1,
        "UNKNOWN": 2,
        "INVALID_ARGUMENT": 3,
        "DEADLINE_EXCEEDED": 4,
        "NOT_FOUND": 5,
        "ALREADY_EXISTS": 6,
        "PERMISSION_DENIED": 7,
        "RESOURCE_EXHAUSTED": 8,
        "FAILED_PRECONDITION": 9,
        "ABORTED": 10,
        "OUT_OF_RANGE": 11,
        "UNIMPLEMENTED": 12,
        "INTERNAL": 13,
        "UNAVAILABLE": 14,
        "DATA_LOSS": 15,
    }.items()


def test_a_status_keeps_code_and_message_and_reads_like_xla():
    error = StatusError(StatusCode.NOT_FOUND, "no record at 0x10")
    assert (error.code, error.message) == (StatusCode.NOT_FOUND, "no record at 0x10")
    assert str(error) == "NOT_FOUND: no record at 0x10"


@pytest.mark.parametrize("kind", [found for name, found in sorted(TREE.items()) if name != "StatusError"])
def test_messages_survive_another_process(kind):
    assert str(pickle.loads(pickle.dumps(kind("say what to do")))) == "say what to do"
