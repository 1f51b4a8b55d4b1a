"""A compiled XLA:GPU program as data, whatever it was read from.

Mirrors ``xla/service/gpu/gpu_executable.proto``. Invariant: everything a plan needs is here, nothing of JAX
or protobuf is needed to use it (``KernelInfo.message`` excepted).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Protocol

from jax_cmdbuf.errors import ContainerError
from jax_cmdbuf.executable.buffers import BufferAllocation
from jax_cmdbuf.executable.thunks import Thunk

__all__ = [
    "CompiledProgram",
    "Constant",
    "DeviceDescription",
    "Executable",
    "Output",
    "RuntimeExecutable",
    "Version",
]

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """The device facts that decide grouping.

    Attributes:
      name: model, for example "NVIDIA H200".
      platform: "CUDA", "ROCM" or "SYCL".
      runtime_version, driver_version, compile_time_toolkit_version: CUDA versions (major, minor, patch).
      source: where the facts come from: "executable", "target h200"...
    """

    name: str
    runtime_version: Version
    driver_version: Version
    compile_time_toolkit_version: Version
    source: str = "executable"
    platform: str = "CUDA"


@dataclass(frozen=True, slots=True)
class Output:
    """One leaf of the program's result: its shape index and the allocation that holds it."""

    shape_index: tuple[int, ...]
    allocation: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: its symbol in the module, its allocation, and its bytes (from the HLO literal; None: not
    found)."""

    symbol: str
    allocation: int
    content: bytes | None = field(default=None, repr=False)


class RuntimeExecutable(Protocol):
    """What ``jax.stages.Compiled.runtime_executable()`` returns, as far as it is used here."""

    def serialize(self) -> bytes:
        """The serialized executable."""


class CompiledProgram(Protocol):
    """A compiled JAX function (``jax.stages.Compiled``), as far as it is used here."""

    def runtime_executable(self) -> RuntimeExecutable:
        """The backend's executable."""


@dataclass(frozen=True)
class Executable:
    """A compiled program.

    Attributes:
      module: HLO module name, for example "jit_train_step".
      allocations: the allocation table; index = position.
      thunks: the program, before any grouping into command buffers.
      debug_options: fully resolved ``DebugOptions``: field name -> value; enum members by name, repeated
        fields as tuples. Fields at their proto default may be missing.
      device: device facts stored in the executable, or None (jaxlib 0.11 and older do not store them).
      outputs: result leaves.
      parameter_shapes: HLO shape text of each entry parameter, in order.
      result_shape: HLO shape text of the result.
      parameter_names: HLO names of the entry parameters, in order, for example "params__w__.1".
      parameter_paths: argument paths of the entry parameters as JAX noted them, for example "params['w']"; ""
        where there is none.
      constants: the constants' symbols and bytes.
      binary: machine code of the module itself (constants' storage), or empty.
      hlo_uses: allocation index -> names of the HLO values that live in it (buffer assignment).
      jaxlib: release series that wrote it ("0.10", "0.11", "0.12"), as its layout tells, or None.
      num_replicas, num_partitions: devices the program runs on.
      partition_size: devices of one fast-interconnect domain (host or slice), 0 if not stated.
    """

    module: str
    allocations: tuple[BufferAllocation, ...]
    thunks: tuple[Thunk, ...]
    debug_options: Mapping[str, object] = field(default_factory=dict)
    device: DeviceDescription | None = None
    outputs: tuple[Output, ...] = ()
    parameter_shapes: tuple[str, ...] = ()
    parameter_names: tuple[str, ...] = ()
    parameter_paths: tuple[str, ...] = ()
    result_shape: str = ""
    constants: tuple[Constant, ...] = ()
    binary: bytes = field(default=b"", repr=False)
    hlo_uses: Mapping[int, tuple[str, ...]] = field(default_factory=dict, repr=False)
    jaxlib: str | None = None
    num_replicas: int = 1
    num_partitions: int = 1
    partition_size: int = 0

    @cached_property
    def parameter_allocations(self) -> tuple[int, ...]:
        """Allocation index of each entry parameter leaf, by parameter number and leaf."""
        found = [each for each in self.allocations if each.parameter_number is not None]
        found.sort(key=lambda each: (each.parameter_number or 0, each.parameter_shape_index))
        return tuple(each.index for each in found)

    @cached_property
    def result_allocations(self) -> tuple[int, ...]:
        """Allocation index of each result leaf, in order; inner nodes of the result have tuple tables."""
        indices = {output.shape_index for output in self.outputs}
        inner = {index[:length] for index in indices for length in range(len(index))}
        leaves = [each for each in self.outputs if each.shape_index not in inner]
        leaves.sort(key=lambda each: each.shape_index)
        return tuple(output.allocation for output in leaves)

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "the input") -> Executable:
        """Reads a serialized executable (``compiled.runtime_executable().serialize()``), gzipped or not.

        Args:
          data: the bytes.
          source: how errors name them, for example the file's name.

        Raises:
          ContainerError: not a serialized XLA:GPU executable, or a damaged one.
          MissingDependencyError: no installed binary knows the messages; the text names the package.
        """
        from jax_cmdbuf.executable.decode import decode_executable

        return decode_executable(data, source=source)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Executable:
        """Reads a file as :meth:`from_bytes` does.

        Raises:
          ContainerError, MissingDependencyError: as :meth:`from_bytes`; ContainerError also if the file
            cannot be read.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise ContainerError(f"cannot read {path}: {error.strerror or error}") from error
        return cls.from_bytes(data, source=str(path))

    @classmethod
    def from_compiled(cls, compiled: CompiledProgram) -> Executable:
        """Reads what ``jax.jit(f).lower(...).compile()`` returned, for a GPU present or not.

        Raises:
          ContainerError, MissingDependencyError: as :meth:`from_bytes`.
        """
        from jax_cmdbuf.executable.decode import decode_executable

        serialized = compiled.runtime_executable().serialize()
        return decode_executable(serialized, source="the compiled function", trusted=True)
