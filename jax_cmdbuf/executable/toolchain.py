"""What compiling for an absent GPU needs on this machine: the CUDA plugin, ``ptxas`` and ``libdevice``.

Invariant: a :class:`Toolchain` names files that exist, so a compilation never fails for lack of them, and the
wheels' own copies are preferred to a CUDA toolkit that happens to be installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jax_cmdbuf.errors import MissingDependencyError

__all__ = ["LIBDEVICE", "PTXAS", "Toolchain", "cuda_plugin_directory", "find_toolchain"]

PTXAS = Path("bin", "ptxas")
LIBDEVICE = Path("nvvm", "libdevice", "libdevice.10.bc")
_PLUGINS = (("jax_plugins.xla_cuda13", "jax-cuda13-pjrt"), ("jax_plugins.xla_cuda12", "jax-cuda12-pjrt"))
_EXTRA = "pip install 'jax-cmdbuf[aot]'"
# Where NVIDIA's wheels put their files, below a directory of sys.path.
_WHEEL_ROOTS = (Path("nvidia", "cu13"), Path("nvidia", "cuda_nvcc"))
_DEFAULT_TOOLKIT = Path("/usr/local/cuda")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The pieces found.

    Attributes:
      plugin: the plugin's distribution, for example "jax-cuda13-pjrt".
      plugin_version: its version.
      ptxas, libdevice: the files; usually below one root.
    """

    plugin: str
    plugin_version: str
    ptxas: Path
    libdevice: Path

    @property
    def root(self) -> Path | None:
        """The directory that has both files in their usual places, or None."""
        root = self.ptxas.parent.parent
        return root if root / PTXAS == self.ptxas and root / LIBDEVICE == self.libdevice else None

    def link_into(self, directory: Path) -> Path:
        """A root with both files: the common one, or links made in ``directory``."""
        if self.root is not None:
            return self.root
        for place, file in ((PTXAS, self.ptxas), (LIBDEVICE, self.libdevice)):
            link = directory / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
        return directory


def find_toolchain(environ: Mapping[str, str], data_dir: str | None = None) -> Toolchain:
    """Finds the pieces: in the directory asked for, NVIDIA's wheels, CUDA_HOME, CUDA_PATH, a toolkit's place.

    Args:
      environ: the environment whose CUDA_HOME, CUDA_PATH and PATH count.
      data_dir: value of ``--xla_gpu_cuda_data_dir``, if the user gave one.

    Raises:
      MissingDependencyError: a piece is missing; the sentence names the package to install.
    """
    plugin, version = _plugin()
    roots = list(_roots(environ, data_dir))
    ptxas = _first(roots, PTXAS) or _on_path("ptxas", environ)
    if ptxas is None:
        raise MissingDependencyError(
            "ptxas is not installed, and XLA cannot compile for a GPU without it: "
            f"{_EXTRA} (package nvidia-cuda-nvcc)"
        )
    libdevice = _first(roots, LIBDEVICE)
    if libdevice is None:
        raise MissingDependencyError(
            "libdevice.10.bc is not installed, and XLA cannot compile math functions for a GPU without it: "
            f"{_EXTRA} (package nvidia-nvvm)"
        )
    return Toolchain(plugin, version, ptxas, libdevice)


def cuda_plugin_directory() -> Path | None:
    """The directory of the installed CUDA plugin (with ``xla_cuda_plugin.so`` in it), or None."""
    for module, _ in _PLUGINS:
        for location in _locations(module):
            if (location / "xla_cuda_plugin.so").is_file():
                return location
    return None


def _plugin() -> tuple[str, str]:
    for module, distribution in _PLUGINS:
        if not any((location / "xla_cuda_plugin.so").is_file() for location in _locations(module)):
            continue
        version = _version(distribution)
        jaxlib = _version("jaxlib")
        if version and jaxlib and version.split(".")[:2] != jaxlib.split(".")[:2]:
            raise MissingDependencyError(
                f"{distribution} {version} does not fit jaxlib {jaxlib}: "
                f"pip install '{distribution}=={jaxlib}'"
            )
        return distribution, version
    raise MissingDependencyError(
        f"the CUDA compiler plugin of JAX is not installed: {_EXTRA} (package jax-cuda13-pjrt, of jaxlib's "
        f"version {_version('jaxlib')})"
    )


def _locations(module: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return []
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec else []


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _roots(environ: Mapping[str, str], data_dir: str | None) -> Iterator[Path]:
    if data_dir:
        yield Path(data_dir)
    for directory in sys.path:
        for root in _WHEEL_ROOTS:
            yield Path(directory or ".", root)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield Path(environ[variable])
    yield _DEFAULT_TOOLKIT


def _first(roots: list[Path], place: Path) -> Path | None:
    return next((root / place for root in roots if (root / place).is_file()), None)


def _on_path(program: str, environ: Mapping[str, str]) -> Path | None:
    found = shutil.which(program, path=environ.get("PATH", os.defpath))
    return Path(found) if found else None
