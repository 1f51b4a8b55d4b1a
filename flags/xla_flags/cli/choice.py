"""Which jaxlib is meant: the one that is named, else the installed one, else the newest that is known.

Invariant: whatever was not asked for is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from xla_flags.errors import UnknownJaxlibError
from xla_flags.schema import Catalog, shipped_versions


@dataclass(frozen=True, slots=True)
class Choice:
    """A jaxlib that was chosen.

    Attributes:
      catalog: of that jaxlib.
      why: `installed`, `newest known`, or "" if it was asked for.
    """

    catalog: Catalog
    why: str = ""

    @property
    def title(self) -> str:
        """The jaxlib in words, with all that a person should know about the choice."""
        presumed = "" if self.catalog.exact else "flags presumed from its library"
        notes = ", ".join(filter(None, (self.why, presumed)))
        return f"jaxlib {self.catalog.version}" + (f" ({notes})" if notes else "")


def add_jaxlib_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--jaxlib`, which may be given many times."""
    known = ", ".join(shipped_versions())
    parser.add_argument(
        "--jaxlib",
        action="append",
        default=[],
        metavar="VERSION",
        help=f"the release to ask: {known}, a beginning of one of them such as 0.12, `installed`, or `all`; "
        "may be repeated (default: the installed one, else the newest of these)",
    )


def choose(names: Sequence[str]) -> tuple[Choice, ...]:
    """The jaxlibs that `--jaxlib` names, in order, each once.

    Raises:
      UnknownJaxlibError: there is no catalog for one of them.
    """
    if not names:
        return (_default(),)
    chosen: dict[str, Choice] = {}
    for name in names:
        for choice in _named(name):
            chosen.setdefault(choice.catalog.version, choice)
    return tuple(chosen.values())


def _default() -> Choice:
    try:
        return Choice(Catalog.installed(), "installed")
    except UnknownJaxlibError:
        return Choice(Catalog.for_jaxlib(shipped_versions()[-1]), "newest known; no jaxlib is installed")


def _named(name: str) -> list[Choice]:
    if name == "all":
        return [Choice(Catalog.for_jaxlib(version)) for version in shipped_versions()]
    if name == "installed":
        return [Choice(Catalog.installed(), "installed")]
    version = name.removeprefix("jaxlib").lstrip("=-v ")
    matching = [each for each in shipped_versions() if each == version or each.startswith(f"{version}.")]
    if matching:
        return [Choice(Catalog.for_jaxlib(matching[-1]))]
    try:
        installed = Catalog.installed()
    except UnknownJaxlibError:
        installed = None
    if installed is not None and installed.version == version:
        return [Choice(installed, "installed")]
    known = ", ".join(shipped_versions())
    raise UnknownJaxlibError(
        f"no flags are known of jaxlib {name!r}; known are {known}, and the installed one"
    )
