"""The installed binaries that parse ``XLA_FLAGS``, each by a flag table of its own.

jaxlib is one; a GPU plugin is another (a shared object with its own copy of ``xla/debug_options_flags.cc``),
and a flag that either does not know ends the process. Invariant: nothing is imported or loaded to find them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from xla_flags.schema import Catalog

__all__ = ["Carrier", "installed_carriers"]


class Carrier(NamedTuple):
    """A distribution with an XLA in it.

    Attributes:
      distribution: its name.
      version: its version, which is that of its XLA's flag table.
      platforms: names in ``JAX_PLATFORMS`` that load it; empty: always loaded.
      library: module and file of its shared object, relative to the module's folder.
    """

    distribution: str
    version: str
    platforms: tuple[str, ...] = ()
    library: tuple[str, str] | None = None

    @property
    def title(self) -> str:
        """ "jaxlib 0.12.0.1"."""
        return f"{self.distribution} {self.version}"

    def is_used(self, environ: Mapping[str, str]) -> bool:
        """Whether a process with this environment will load it."""
        chosen = environ.get("JAX_PLATFORMS", "")
        if not self.platforms or not chosen:
            return True
        return any(name.strip() in self.platforms for name in chosen.split(","))

    def catalog(self) -> Catalog:
        """Its flags: the shipped table of this version, or one derived from its binary.

        Raises:
          UnknownJaxlibError: its binary is not where it should be.
          CatalogError: its binary holds no descriptors of the flags.
        """
        from xla_flags.schema import Catalog, shipped_versions

        if self.version in shipped_versions():
            return Catalog.for_jaxlib(self.version)
        if self.library is None:
            return Catalog.installed()
        from xla_flags.installed import derived_catalog

        return derived_catalog(self.version, self._library_file())

    def _library_file(self) -> Path:
        module, file = self.library or ("", "")
        found = importlib.util.find_spec(module)
        folders = found.submodule_search_locations if found is not None else None
        return Path(next(iter(folders or ())), file)


# (distribution, platforms, module of its shared object, file)
_PLUGINS = (
    ("jax-cuda13-pjrt", ("cuda", "gpu"), "jax_plugins.xla_cuda13", "xla_cuda_plugin.so"),
    ("jax-cuda12-pjrt", ("cuda", "gpu"), "jax_plugins.xla_cuda12", "xla_cuda_plugin.so"),
)


def installed_carriers() -> tuple[Carrier, ...]:
    """jaxlib first, then the GPU plugins."""
    found = []
    if version := _version("jaxlib"):
        found.append(Carrier("jaxlib", version))
    for distribution, platforms, module, file in _PLUGINS:
        if version := _version(distribution):
            found.append(Carrier(distribution, version, platforms, (module, file)))
    return tuple(found)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
