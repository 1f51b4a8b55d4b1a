"""A CUDA device behind the same protocols as the simulated one: virtual memory, stream timeline, kernels.

Mirrors ``xla/stream_executor/cuda/cuda_{memory_allocation,memory_reservation,vmm_allocator,stream}.cc`` over
``cuda.bindings.driver``. Invariant: a handle is owned by exactly one object here, and the primary context
stays retained as long as the executor lives.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from contextlib import AbstractContextManager
from typing import Any

from jax_cmdbuf.stream_executor.cuda_command_buffer import CudaCommandBuffer, CudaKernel
from jax_cmdbuf.stream_executor.cuda_driver import (
    call,
    check,
    current_context,
    driver,
    retain_primary_context,
)
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.memory import DriverError, MemoryAllocation, MemoryReservation

__all__ = ["CudaExecutor", "CudaStream", "CudaVirtualMemory"]


class CudaVirtualMemory:
    """``VirtualMemory`` of one CUDA device."""

    def __init__(self, device_ordinal: int) -> None:
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = device_ordinal
        access = driver.CUmemAccessDesc()
        access.location = properties.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._properties = properties
        self._access = access
        recommended = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        self.granularity: int = call("cuMemGetAllocationGranularity", properties, recommended)

    def reserve_address(self, size: int) -> int:
        """See ``VirtualMemory``."""
        return int(call("cuMemAddressReserve", size, self.granularity, 0, 0))

    def free_address(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        call("cuMemAddressFree", address, size)

    def create_memory(self, size: int) -> int:
        """See ``VirtualMemory``."""
        return int(call("cuMemCreate", size, self._properties, 0))

    def retain_memory(self, address: int) -> int:
        """See ``VirtualMemory``."""
        return int(call("cuMemRetainAllocationHandle", address))

    def mapping_at(self, address: int) -> tuple[int, int]:
        """See ``VirtualMemory``."""
        begin, size = call("cuMemGetAddressRange", address)
        return int(begin), int(size)

    def release_memory(self, handle: int) -> None:
        """See ``VirtualMemory``."""
        call("cuMemRelease", handle)

    def map(self, address: int, size: int, handle: int, offset: int = 0) -> None:
        """See ``VirtualMemory``."""
        call("cuMemMap", address, size, offset, handle, 0)

    def set_access(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        call("cuMemSetAccess", address, size, [self._access], 1)

    def unmap(self, address: int, size: int) -> None:
        """See ``VirtualMemory``."""
        call("cuMemUnmap", address, size)


class CudaStream:
    """A stream with a timeline in pinned host memory, which the stream itself writes.

    Args:
      executor: the device.
      handle: an existing ``CUstream`` (XLA's, for example), which stays its owner's; None makes one.
    """

    def __init__(self, executor: CudaExecutor, handle: int | None = None) -> None:
        self.executor = executor
        with current_context(executor.context):
            word = call("cuMemHostAlloc", 8, driver.CU_MEMHOSTALLOC_DEVICEMAP)
            self._timeline = ctypes.c_uint64.from_address(int(word))
            self._timeline.value = 0
            self._timeline_on_device = call("cuMemHostGetDevicePointer", word, 0)
            non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            own = handle is None
            self.handle = call("cuStreamCreate", non_blocking) if own else driver.CUstream(handle)
        self._release = weakref.finalize(
            self, _close_stream, executor.context, int(word), self.handle if own else None
        )

    def enqueue_seqno(self, seqno: int) -> None:
        """See ``Stream``."""
        call("cuStreamWriteValue64", self.handle, self._timeline_on_device, seqno, 0)

    def completed_seqno(self) -> int:
        """See ``Stream``."""
        return self._timeline.value

    def memcpy_d2d(self, destination: DeviceAddress, source: DeviceAddress) -> None:
        """See ``Stream``."""
        call("cuMemcpyDtoDAsync", destination.opaque, source.opaque, source.size, self.handle)

    def memcpy_h2d(self, destination: DeviceAddress, source: int) -> None:
        """See ``Stream``."""
        call("cuMemcpyHtoDAsync", destination.opaque, source, destination.size, self.handle)

    def wait_microseconds(self, duration: float) -> None:
        """See ``Stream``.

        Raises:
          DriverError: the device has faulted, so waiting longer would not help.
        """
        time.sleep(duration / 1e6)
        status, *_ = driver.cuStreamQuery(self.handle)
        if status != driver.CUresult.CUDA_ERROR_NOT_READY:
            check("cuStreamQuery", status)

    def synchronize(self) -> None:
        """See ``Stream``."""
        call("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        """Waits for the stream and releases it and its timeline; more calls do nothing."""
        self._release()


def _close_stream(context: Any, word: int, own_stream: Any | None) -> None:
    with current_context(context):
        if own_stream is not None:
            call("cuStreamSynchronize", own_stream)
            call("cuStreamDestroy", own_stream)
        call("cuMemFreeHost", word)


class CudaExecutor:
    """``StreamExecutor`` of a CUDA device.

    Attributes:
      context: the device's primary context, shared with JAX.
      memory: the driver's virtual-memory calls.

    Raises:
      MissingDependencyError: no driver on this machine.
      DriverError: no such device.
    """

    def __init__(self, device_ordinal: int = 0) -> None:
        self.device_ordinal = device_ordinal
        device, self.context = retain_primary_context(device_ordinal)
        self._release = weakref.finalize(self, driver.cuDevicePrimaryCtxRelease, device)
        self.memory = CudaVirtualMemory(device_ordinal)
        self._kernels: weakref.WeakValueDictionary[tuple[bytes, str], CudaKernel] = (
            weakref.WeakValueDictionary()
        )

    @property
    def granularity(self) -> int:
        """See ``StreamExecutor``."""
        return self.memory.granularity

    @property
    def driver_version(self) -> str:
        """The CUDA version that the driver speaks, for example "13.0"."""
        number = int(call("cuDriverGetVersion"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def activate(self) -> AbstractContextManager[None]:
        """Makes the device's context the calling thread's for a ``with`` block."""
        return current_context(self.context)

    def create_allocation(self, size: int) -> MemoryAllocation:
        """See ``StreamExecutor``."""
        return MemoryAllocation(self.memory, size)

    def create_reservation(self, size: int) -> MemoryReservation:
        """See ``StreamExecutor``."""
        return MemoryReservation(self.memory, size)

    def create_stream(self) -> CudaStream:
        """See ``StreamExecutor``."""
        return CudaStream(self)

    def wrap_stream(self, handle: int) -> CudaStream:
        """A stream somebody else owns, XLA's for example, with a timeline of ours."""
        return CudaStream(self, handle)

    def create_command_buffer(self) -> CudaCommandBuffer:
        """See ``StreamExecutor``."""
        return CudaCommandBuffer(self.context)

    def load_kernel(self, module: bytes, name: str) -> CudaKernel:
        """See ``StreamExecutor``; one image is loaded once for all who hold the same kernel of it.

        Args:
          module: cubin, or PTX text.
          name: the kernel's symbol.

        Raises:
          DriverError: the driver cannot load the image or finds no such kernel in it.
        """
        kernel = self._kernels.get((module, name))
        if kernel is None:
            with current_context(self.context):
                # The driver reads PTX up to a NUL byte; a cubin knows its own length.
                loaded = call("cuModuleLoadData", module + b"\0")
                try:
                    function = call("cuModuleGetFunction", loaded, name.encode())
                except DriverError:
                    driver.cuModuleUnload(loaded)
                    raise
            kernel = self._kernels[module, name] = CudaKernel(name, function, loaded, self.context)
        return kernel

    def write(self, address: DeviceAddress, content: bytes) -> None:
        """See ``StreamExecutor``."""
        with current_context(self.context):
            call("cuMemcpyHtoD", address.opaque, content, len(content))

    def allocate_foreign(self, size: int) -> DeviceAddress:
        """Memory of another allocator (``cuMemAlloc``), which no VMM allocator knows."""
        with current_context(self.context):
            return DeviceAddress(int(call("cuMemAlloc", size)), size)

    def free_foreign(self, address: DeviceAddress) -> None:
        """Gives ``allocate_foreign`` memory back."""
        with current_context(self.context):
            call("cuMemFree", address.opaque)
