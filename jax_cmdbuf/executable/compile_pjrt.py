"""Compiles HLO for GPUs that are not there by calling the CUDA plugin through PJRT's C interface.

JAX's own way to XLA takes StableHLO only, and optimized HLO (bitcasts, fusions, a schedule) has no
StableHLO form. The plugin takes HLO as it is; a module with a schedule is not optimized again. Mirrors
``xla/pjrt/c/pjrt_c_api.h``. Invariant: only structures and positions of major version 0 are used, whose
order never changes; another major version is refused before any call.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_void_p, sizeof
from pathlib import Path
from typing import Any

from jax_cmdbuf.errors import MissingDependencyError

__all__ = ["PjrtError", "compile_hlo"]

_API_MAJOR = 0
# Position of each function in PJRT_Api, counted from the first one.
_ERROR_MESSAGE = 1
_PLUGIN_INITIALIZE = 3
_EXECUTABLE_SERIALIZE = 49
_TOPOLOGY_CREATE = 82
_COMPILE = 89
_STRING = 0  # PJRT_NamedValue_kString
# What jaxlib puts before a serialized executable: a header message of this length that names the runtime.
_IFRT_HEADER = b"\x0b\x12\x09pjrt_ifrt"


class PjrtError(Exception):
    """The plugin's own message."""


def _arguments(name: str, *fields: tuple[str, Any]) -> type[Structure]:
    """One of PJRT's argument structures: its size, a pointer for extensions, then the fields."""
    layout = [("struct_size", c_size_t), ("extension", c_void_p), *fields]
    return type(name, (Structure,), {"_fields_": layout})


_Version = _arguments("PJRT_Api_Version", ("major", c_int), ("minor", c_int))
_ErrorMessage = _arguments("Error_Message", ("error", c_void_p), ("message", c_void_p), ("size", c_size_t))
_Initialize = _arguments("Plugin_Initialize")
_NamedValue = _arguments(
    "NamedValue",
    ("name", c_char_p),
    ("name_size", c_size_t),
    ("type", c_int),
    ("value", c_char_p),
    ("value_size", c_size_t),
)
_CreateTopology = _arguments(
    "TopologyDescription_Create",
    ("name", c_char_p),
    ("name_size", c_size_t),
    ("options", POINTER(_NamedValue)),
    ("num_options", c_size_t),
    ("topology", c_void_p),
)
_Program = _arguments(
    "Program", ("code", c_char_p), ("code_size", c_size_t), ("format", c_char_p), ("format_size", c_size_t)
)
_Compile = _arguments(
    "Compile",
    ("topology", c_void_p),
    ("program", POINTER(_Program)),
    ("options", c_char_p),
    ("options_size", c_size_t),
    ("client", c_void_p),
    ("executable", c_void_p),
)
_Serialize = _arguments(
    "Executable_Serialize",
    ("executable", c_void_p),
    ("data", c_void_p),
    ("size", c_size_t),
    ("owner", c_void_p),
    ("deleter", c_void_p),
)


def compile_hlo(hlo: bytes, options: bytes, *, plugin: Path, target_text: str, devices: int) -> bytes:
    """Compiles a module.

    Args:
      hlo: a serialized ``HloModuleProto``.
      options: a serialized ``CompileOptionsProto``.
      plugin: the plugin's library.
      target_text: ``GpuTargetConfigProto`` in text form.
      devices: GPUs on one host.

    Returns:
      The serialized executable, as ``compiled.runtime_executable().serialize()`` gives it.

    Raises:
      MissingDependencyError: the library is no PJRT plugin, or of another major version.
      PjrtError: XLA refused something; its message.
    """
    api = _Api(plugin)
    api.call(_PLUGIN_INITIALIZE, _new(_Initialize))
    values = (("target_config", target_text), ("topology", f"1x1x{devices}"))
    named = (_NamedValue * len(values))(*(_named_value(name, value) for name, value in values))
    topology = _new(_CreateTopology, name=b"", options=named, num_options=len(values))
    api.call(_TOPOLOGY_CREATE, topology)
    program = _new(_Program, code=hlo, code_size=len(hlo), format=b"hlo", format_size=3)
    compiled = _new(
        _Compile,
        topology=topology.topology,
        program=ctypes.pointer(program),
        options=options,
        options_size=len(options),
    )
    api.call(_COMPILE, compiled)
    serialized = _new(_Serialize, executable=compiled.executable)
    api.call(_EXECUTABLE_SERIALIZE, serialized)
    # The plugin's objects live as long as the process: a worker compiles once.
    return _IFRT_HEADER + ctypes.string_at(serialized.data, serialized.size)


def _new(structure: type[Structure], **fields: Any) -> Any:
    return structure(struct_size=sizeof(structure), **fields)


def _named_value(name: str, value: str) -> Any:
    key, text = name.encode(), value.encode()
    return _new(_NamedValue, name=key, name_size=len(key), type=_STRING, value=text, value_size=len(text))


class _Api:
    """The plugin's table of functions."""

    def __init__(self, plugin: Path) -> None:
        try:
            get_api = ctypes.CDLL(str(plugin)).GetPjrtApi
        except (OSError, AttributeError) as error:
            raise MissingDependencyError(f"{plugin} is not a PJRT plugin: {error}") from error
        get_api.restype = c_void_p
        self._address = int(get_api())
        # PJRT_Api opens with its size and a pointer for extensions; the version's own size says where it
        # ends.
        version_address = self._address + sizeof(c_size_t) + sizeof(c_void_p)
        version: Any = _Version.from_address(version_address)
        if version.major != _API_MAJOR:
            raise MissingDependencyError(
                f"{plugin.name} speaks PJRT {version.major}.{version.minor}, not {_API_MAJOR}"
            )
        self._functions = version_address + sizeof(_Version)

    def call(self, position: int, arguments: Any) -> None:
        """Calls the function at ``position``.

        Raises:
          PjrtError: it returned an error.
        """
        error = self._function(position)(byref(arguments))
        if error:
            message = _new(_ErrorMessage, error=error)
            self._function(_ERROR_MESSAGE)(byref(message))
            raise PjrtError(ctypes.string_at(message.message, message.size).decode(errors="replace"))

    def _function(self, position: int) -> Any:
        address = c_void_p.from_address(self._functions + position * sizeof(c_void_p)).value
        return ctypes.CFUNCTYPE(c_void_p, c_void_p)(address or 0)
