"""The packages in this Python that hold an XLA of their own, each of which reads `XLA_FLAGS` for itself.

A flag that one of them does not know ends the process, even if all others do. Invariant: packages are found
by their metadata; none is imported.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path

from xla_flags.errors import CatalogError, UnknownJaxlibError
from xla_flags.installed import derived_catalog
from xla_flags.schema import Catalog, shipped_versions

# Names of packages -> the shared object in them that holds XLA, and whether it is of jaxlib's releases.
_KNOWN: tuple[tuple[re.Pattern[str], str, bool], ...] = (
    (re.compile(r"jaxlib"), r"jaxlib/(libjax_common|jax_common|xla_extension|_jax)\.(so|dylib|dll)", True),
    (re.compile(r"jax-(cuda|rocm)\d*-pjrt"), r"jax_plugins/\w+/xla_(cuda|rocm)_plugin\.so", True),
    (
        re.compile(r"tensorflow(-cpu|-gpu|-rocm|-intel)?|tf-nightly"),
        r"tensorflow/libtensorflow_cc\.so\.2",
        False,
    ),
    (re.compile(r"torch-xla"), r"_XLAC\.[\w-]+\.so", False),
)


@dataclass(frozen=True, slots=True)
class Carrier:
    """An installed package with an XLA in it.

    Attributes:
      name: of the package.
      version: of the package.
      library: its shared object; None: it is not where it should be.
      follows_jaxlib: whether its versions are jaxlib's, built from the same XLA.
    """

    name: str
    version: str
    library: Path | None
    follows_jaxlib: bool

    def catalog(self) -> Catalog:
        """Its flags: the shipped catalog of its version, or one derived from its library.

        Raises:
          CatalogError: neither is to be had.
        """
        if self.follows_jaxlib and self.version in shipped_versions():
            return Catalog.for_jaxlib(self.version)
        if self.library is None:
            raise CatalogError(f"{self.name} {self.version} has no library to read its flags from")
        try:
            return derived_catalog(self.version, self.library)
        except (OSError, UnknownJaxlibError) as error:
            raise CatalogError(f"the flags of {self.name} {self.version} cannot be read: {error}") from error


def installed_carriers() -> tuple[Carrier, ...]:
    """The packages with an XLA in this Python, jaxlib first."""
    found: dict[str, tuple[int, Carrier]] = {}
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        for rank, (names, library, follows) in enumerate(_KNOWN):
            if names.fullmatch(name) and name not in found:
                path = _library(distribution, re.compile(library))
                found[name] = rank, Carrier(name, distribution.version, path, follows)
    return tuple(each for _, each in sorted(found.values(), key=lambda pair: (pair[0], pair[1].name)))


def _library(distribution: importlib.metadata.Distribution, pattern: re.Pattern[str]) -> Path | None:
    """The largest file of that name: in some releases the one with the better name only refers to another."""
    paths = [
        Path(str(distribution.locate_file(file)))
        for file in distribution.files or ()
        if pattern.fullmatch(file.as_posix())
    ]
    return max((path for path in paths if path.is_file()), key=lambda path: path.stat().st_size, default=None)
