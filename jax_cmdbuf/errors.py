"""The exceptions of jax_cmdbuf, one tree, with XLA's status codes where XLA has one.

CmdbufError
├── InputError              what the user gave cannot be used (a file, an argument, a flag, a target)
│   ├── ContainerError      bytes that are not a serialized executable, or a damaged one
│   └── TargetError         an unknown or unusable GPU target
├── MissingDependencyError  something is missing on this machine; the message names the package
├── CompileError            XLA refused or died while compiling
└── StatusError             what XLA's runtime would return as a status; carries the code
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "CmdbufError",
    "CompileError",
    "ContainerError",
    "InputError",
    "MissingDependencyError",
    "StatusCode",
    "StatusError",
    "TargetError",
]


class StatusCode(Enum):
    """The subset of ``absl::StatusCode`` that XLA's VA-remap and VMM code returns."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13


class CmdbufError(Exception):
    """Base of everything this package raises on purpose; its text is one sentence for a person."""


class InputError(CmdbufError):
    """What the user gave cannot be used; the text says what was found and what to do."""


class ContainerError(InputError):
    """The bytes are not a serialized XLA:GPU executable, or are damaged or of an unknown layout."""


class TargetError(InputError):
    """The named GPU target is unknown, or its description lacks a field XLA cannot compile without."""


class MissingDependencyError(CmdbufError):
    """A package or tool that the request needs is not installed; the text names what to install."""


class CompileError(CmdbufError):
    """XLA refused the program, or its process ended while compiling it."""


class StatusError(CmdbufError):
    """An error that XLA's runtime reports as a status.

    Attributes:
      code: the status code XLA returns for the same situation.
    """

    def __init__(self, code: StatusCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
