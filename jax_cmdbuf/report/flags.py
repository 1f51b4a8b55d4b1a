"""Which XLA flags of a compiled program differ from their default.

Invariant: only what the user can have set is listed; options that this package sets for its own compilations
are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.policy import POLICIES
from xla_flags.errors import CatalogError, UnknownJaxlibError
from xla_flags.schema import Catalog, FieldSpec, shipped_versions

__all__ = ["OWN_OPTIONS", "changed_flags", "missing_update_modes"]

_UPDATE_MODE = "xla_gpu_command_buffer_update_mode"
# Options of this package's own compilations.
OWN_OPTIONS = frozenset({"xla_dump_to"})
# Set by JAX for every compilation, whatever the user's flags are.
_SET_BY_JAX = frozenset(
    {"xla_gpu_cuda_data_dir", "xla_pjrt_allow_auto_layout_in_hlo", "xla_detailed_logging"}
)


def changed_flags(
    executable: Executable, *, jaxlib: str | None = None, hidden: frozenset[str] = frozenset()
) -> Mapping[str, object]:
    """Flag -> value, where it is not the default of the jaxlib that compiled.

    Args:
      executable: the program; its ``debug_options`` are compared.
      jaxlib: the release that compiled it, where known better than the executable knows.
      hidden: names that are not listed.

    Returns:
      In the order of names; empty where no catalog of that jaxlib is known.
    """
    catalog = _catalog(jaxlib or executable.jaxlib)
    if catalog is None:
        return MappingProxyType({})
    changed = {
        name: value
        for name, value in sorted(executable.debug_options.items())
        if name not in (hidden | _SET_BY_JAX)
        and (field := catalog.fields.get(name)) is not None
        and _comparable(field, value) != _comparable(field, field.default)
    }
    return MappingProxyType(changed)


def missing_update_modes(jaxlib: str | None) -> tuple[str, ...]:
    """The update modes that a plan shows but that this release of jaxlib does not have."""
    catalog = _catalog(jaxlib)
    field = catalog.fields.get(_UPDATE_MODE) if catalog is not None else None
    if field is None or field.enum is None:
        return ()
    return tuple(mode.name for mode in POLICIES if mode.name not in field.enum.numbers)


def _catalog(jaxlib: str | None) -> Catalog | None:
    """The catalog of a release; of the newest shipped one where the executable knows only "0.12"."""
    if jaxlib is None:
        return None
    versions = [each for each in shipped_versions() if each == jaxlib or each.startswith(f"{jaxlib}.")]
    try:
        return Catalog.for_jaxlib(versions[-1]) if versions else None
    except (CatalogError, UnknownJaxlibError):
        return None


def _comparable(field: FieldSpec, value: object) -> object:
    if field.repeated and not field.is_map:
        items = list(value) if isinstance(value, list | tuple) else [value]
        # Lists of enum members are sets to XLA; their order says nothing.
        return sorted(map(str, items)) if field.type == "enum" else list(map(str, items))
    if field.is_map:
        return dict(value) if isinstance(value, Mapping) else value
    if field.type == "float" and isinstance(value, int | float):
        return f"{value:.6g}"  # the proto holds single precision
    return value
