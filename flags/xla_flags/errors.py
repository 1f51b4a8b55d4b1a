"""What this package raises when it cannot answer; a bad flag is an answer and raises nothing.

XlaFlagsError
├── UnknownJaxlibError      no catalog is shipped for that version, or no jaxlib is installed
├── CatalogError            a catalog, or the descriptors in a jaxlib, cannot be read
├── ProcessWouldEndError    the options were asked of flags with which XLA would end the process
└── AlreadyReadError        XLA in this process has read its flags, and what is asked for is too late
"""

from __future__ import annotations


class XlaFlagsError(Exception):
    """Base of all errors of this package."""


class UnknownJaxlibError(XlaFlagsError, LookupError):
    """There is no catalog for the jaxlib asked for."""


class CatalogError(XlaFlagsError, ValueError):
    """A catalog or an installed jaxlib could not be read."""


class ProcessWouldEndError(XlaFlagsError, ValueError):
    """DebugOptions were asked for, but with these flags XLA ends the process before there are any."""


class AlreadyReadError(XlaFlagsError, RuntimeError):
    """`XLA_FLAGS` was to be changed after XLA in this process had read it, for good."""
