"""Lets XLA compile calls of our own FFI targets in the worker, where their handlers are not.

XLA asks only whether a target has a handler and what that declares, by calling it with a metadata extension;
the executable keeps the target's name, and whoever loads it brings the handler. Mirrors
``xla/pjrt/c/pjrt_c_api_gpu_extension.h`` and the metadata part of ``xla/ffi/api/c_api.h``. Invariant: only
our own targets are registered; a plugin that cannot take them is left as it is and refuses the program.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p, sizeof
from pathlib import Path
from typing import Any

from jax_cmdbuf.executable.toolchain import cuda_plugin_directory

__all__ = ["OUR_TARGETS", "register_stand_ins"]

OUR_TARGETS = ("jax_cmdbuf.probe",)

_CUSTOM_CALLS = 0  # PJRT_Extension_Type_Gpu_Custom_Call
_TYPED = 1  # api_version of a typed handler
_METADATA = 1  # XLA_FFI_Extension_Metadata
_Function = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class _PjrtHeader(Structure):
    """How ``PJRT_Api`` opens."""

    _fields_ = (("struct_size", c_size_t), ("extensions", c_void_p))


class _Extension(Structure):
    """``PJRT_Gpu_Custom_Call``; every extension has the first three fields."""

    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p), ("register", c_void_p))


class _Registration(Structure):
    """``PJRT_Gpu_Register_Custom_Call_Args``."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("name_size", c_size_t),
        ("api_version", c_int),
        ("instantiate", c_void_p),
        ("prepare", c_void_p),
        ("initialize", c_void_p),
        ("execute", c_void_p),
    )


class _Version(Structure):
    """``XLA_FFI_Api_Version``."""

    _fields_ = (("struct_size", c_size_t), ("extensions", c_void_p), ("major", c_int), ("minor", c_int))


class _Metadata(Structure):
    """``XLA_FFI_Metadata``, as far as it is answered."""

    _fields_ = (("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _Question(Structure):
    """``XLA_FFI_Metadata_Extension``."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("type", c_int),
        ("next", c_void_p),
        ("metadata", POINTER(_Metadata)),
    )


class _FfiApi(Structure):
    """How ``XLA_FFI_Api`` opens."""

    _fields_ = (("struct_size", c_size_t), ("extensions", c_void_p), ("version", _Version))


class _Frame(Structure):
    """How ``XLA_FFI_CallFrame`` opens."""

    _fields_ = (("struct_size", c_size_t), ("question", POINTER(_Question)), ("api", POINTER(_FfiApi)))


def _answer(address: int) -> None:
    """The stand-in: declares nothing, and speaks whatever version the caller does."""
    frame: Any = _Frame.from_address(address)
    if frame.question and frame.api and frame.question.contents.type == _METADATA:
        answer = frame.question.contents.metadata.contents
        answer.version.major = frame.api.contents.version.major
        answer.version.minor = frame.api.contents.version.minor
        answer.traits = 0


# Kept as long as the plugin may call it.
_stand_in = _Function(_answer)


def register_stand_ins() -> tuple[str, ...]:
    """Makes the CUDA plugin know our targets, for the rest of the process; they must not be called in it.

    To be called last before compiling: whoever has a real handler registers it first.

    Returns:
      The targets that the plugin took.
    """
    directory = cuda_plugin_directory()
    if directory is None or (register := _registration(directory / "xla_cuda_plugin.so")) is None:
        return ()
    return tuple(target for target in OUR_TARGETS if not register(byref(_described(target))))


def _described(target: str) -> _Registration:
    name = target.encode()
    handler = ctypes.cast(_stand_in, c_void_p)
    return _Registration(sizeof(_Registration), name, len(name), _TYPED, execute=handler)


def _registration(plugin: Path) -> Any:
    """The plugin's function that registers custom calls, or None."""
    try:
        get_api = ctypes.CDLL(str(plugin)).GetPjrtApi
    except (OSError, AttributeError):
        return None
    get_api.restype = c_void_p
    address = _PjrtHeader.from_address(get_api()).extensions
    while address:
        extension: Any = _Extension.from_address(address)
        if extension.type == _CUSTOM_CALLS:
            return _Function(extension.register)
        address = extension.next
    return None
