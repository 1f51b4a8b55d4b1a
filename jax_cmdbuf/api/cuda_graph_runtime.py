"""``runtime="cuda_graph"``: a function's kernels as command buffers of ours, inside one custom call.

The call of a decorated function is the call of a jitted function around it, whose program is one custom call;
its handler gets XLA's stream and buffers, and the program's own work is enqueued there. Invariants: values
are bit for bit those of the jitted function; what we cannot run, XLA runs, with the reason in the log and in
``reports``; a call that an outer trace takes in is left to JAX.
"""

from __future__ import annotations

import atexit
import functools
import logging
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jax_cmdbuf import _jax
from jax_cmdbuf.api.ffi import CallFrame, FfiHandler
from jax_cmdbuf.api.graph_call import GraphCall, describe_call
from jax_cmdbuf.api.graph_program import GraphProgram, ProgramOptions
from jax_cmdbuf.api.graph_signatures import PROGRAMS, GraphReport, GraphSignature, GraphSignatures
from jax_cmdbuf.api.native_mode import NativeClient, UpdateModeStatus, native_client, update_mode_status
from jax_cmdbuf.api.session import Device, cuda_device
from jax_cmdbuf.api.signature import flatten_arguments
from jax_cmdbuf.errors import CmdbufError, StatusCode, StatusError
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.guard import Guard, Guarded
from jax_cmdbuf.runtime.registry import ProfileRegistry
from xla_flags.options import CommandBufferUpdateMode

if TYPE_CHECKING:
    from jax_cmdbuf.api.decorator import CommandBufferFunction

__all__ = [
    "CudaGraphRuntime",
    "GraphFunction",
    "cuda_graph_runtime",
    "set_cuda_graph_runtime",
]

_LOGGER = logging.getLogger("jax_cmdbuf")
_TARGET = "jax_cmdbuf.cuda_graph"
_SEVERAL_DEVICES = "its arguments are spread over several devices"


class CudaGraphRuntime:
    """All functions of the process that run so. Safe to call from any thread.

    Attributes:
      registry: their profiles.
    """

    def __init__(
        self,
        *,
        client: NativeClient | None = None,
        read_executable: Callable[[Any], Executable] = Executable.from_compiled,
        open_device: Callable[[int, int], Device] = cuda_device,
        platform: str = "cuda",
        guard: Guard | None = None,
    ) -> None:
        """A runtime without functions.

        Args:
          client: what decides about XLA's own update modes; None: of this process.
          read_executable: gives the executable of a ``jax.stages.Compiled``.
          open_device: (device ordinal, stream handle) -> the device.
          platform: JAX's name of the platform on which functions run so; elsewhere XLA runs them.
          guard: what to do where XLA would fail or thrash; None: ``Guarded()``.
        """
        self.registry = ProfileRegistry()
        self.platform = platform
        self._client = client or native_client(jax.default_backend())
        self._read_executable = read_executable
        self._open_device = open_device
        self._guard = guard or Guarded()
        self._lock = threading.Lock()
        self._signatures: weakref.WeakSet[GraphSignatures] = weakref.WeakSet()
        self._retired: deque[list[GraphSignature]] = deque()
        # Before the handler's gate is made, so that it closes first: what is called then finds its program.
        atexit.register(self._close_at_exit)
        if self.is_possible:
            _register()

    @property
    def is_possible(self) -> bool:
        """Whether JAX runs on a platform on which functions can run so."""
        return self.platform != "cuda" or self._client.platform == "gpu"

    def attach(self, function: CommandBufferFunction[..., Any]) -> Callable[..., Any]:
        """What to call instead of the function's jitted function."""
        self.collect()
        _, native_options = update_mode_status(function.jitted, function.observed.mode, self._client)
        signatures = GraphSignatures(function.jitted, function.names, function.observed.name)
        options = ProgramOptions(
            function.observed.mode, self.registry, self._guard, self._open_device, self._client.is_vmm
        )
        trace = functools.partial(_trace, self._read_executable, self.platform, signatures, options)
        functools.update_wrapper(trace, function.jitted)
        ours = _jax.jit_like(function.jitted, trace, native_options)
        if not self.is_possible:
            ours = function.jitted
            signatures.leave_to_xla(f"JAX runs on the platform {self._client.platform!r}, not on CUDA")
        elif ours is None:
            ours = function.jitted
            signatures.leave_to_xla("jax.jit did not make it")
        native = _jax.jit_with_options(function.jitted, native_options) or function.jitted
        graph = GraphFunction(self, signatures, native, ours)
        with self._lock:
            self._signatures.add(signatures)
        # What is released in the end must not keep alive what it waits for.
        weakref.finalize(graph, self._retired.append, signatures.made).atexit = False
        return graph.__call__

    def status(self, function: CommandBufferFunction[..., Any]) -> UpdateModeStatus:
        """What becomes of a function's update mode, as far as its calls have shown."""
        mode = str(function.observed.mode)
        mine = [each for each in self.reports() if each.function == function.observed.name]
        for report in mine:
            if report.native_reason:
                native, _ = update_mode_status(function.jitted, function.observed.mode, self._client)
                return UpdateModeStatus(mode, native.effective, report.native_reason, native.remedy, "xla")
        for report in mine:
            if report.remapping_reason and function.observed.mode != CommandBufferUpdateMode.ALWAYS_UPDATE:
                always = str(CommandBufferUpdateMode.ALWAYS_UPDATE)
                return UpdateModeStatus(mode, always, report.remapping_reason, runtime="cuda_graph")
        return UpdateModeStatus(mode, mode, runtime="cuda_graph")

    def reports(self) -> tuple[GraphReport, ...]:
        """Every signature of the functions that live."""
        with self._lock:
            live = list(self._signatures)
        return tuple(each.report() for signatures in live for each in list(signatures.made))

    def collect(self) -> None:
        """Gives back what functions that died held on the devices; what a device refuses is logged."""
        if not self._retired:
            return
        _wait_for_handlers(self.platform)
        while self._retired:
            try:
                made = self._retired.popleft()
            except IndexError:
                return  # another thread was quicker
            while made:
                signature = made.pop()
                try:
                    signature.forget()
                except StatusError as error:
                    _LOGGER.warning("releasing %s: %s", signature.name, error)

    def close(self) -> None:
        """Gives back everything on the devices; functions that are called again take it anew.

        Raises:
          StatusError: a device refused; what could be released is.
        """
        self.collect()
        with ExitStack() as stack:
            with self._lock:
                live = list(self._signatures)
            stack.callback(self.registry.close)
            for signatures in live:
                for signature in list(signatures.made):
                    stack.callback(signature.release)

    def _close_at_exit(self) -> None:
        # Nobody is left to whom a failure could be told.
        with suppress(StatusError, RuntimeError):
            self.close()


class GraphFunction:
    """What is called instead of a decorated function's jitted function."""

    __slots__ = (
        *("__weakref__", "_disable_jit", "_is_top_level"),
        *("_jitted", "_native", "_ours", "_runtime", "_signatures"),
    )

    def __init__(
        self, runtime: CudaGraphRuntime, signatures: GraphSignatures, native: Any, ours: Any
    ) -> None:
        """A function.

        Args:
          runtime: whose it is.
          signatures: what its calls have shown.
          native: what XLA runs: the same function, perhaps with compiler options.
          ours: the function around it.
        """
        self._runtime = runtime
        self._signatures = signatures
        self._jitted, self._native, self._ours = signatures.jitted, native, ours
        self._is_top_level = _jax.top_level_check()
        self._disable_jit = _jax.disable_jit_switch()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        if not self._is_top_level() or self._disable_jit.value:
            return self._jitted(*args, **kwargs)
        runtime = self._runtime
        if runtime._retired:
            runtime.collect()
        if _device_count() > 1 and _is_spread((args, kwargs)):
            self._signatures.leave_to_xla(_SEVERAL_DEVICES)
            return self._native(*args, **kwargs)
        return self._ours(*args, **kwargs)


def _trace(
    read_executable: Callable[[Any], Executable],
    platform: str,
    signatures: GraphSignatures,
    options: ProgramOptions,
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """The function as JAX traces it for one signature: one custom call, or the jitted function itself."""
    jitted = signatures.jitted
    plain = _jax.jit_without_options(jitted)
    leaves, paths = flatten_arguments(jitted, signatures.names, args, kwargs)
    traced = jitted.trace(*args, **kwargs)
    with warnings.catch_warnings():
        # The function around it says the same once more.
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        lowered = traced.lower()
    compiled = lowered.compile()
    module = ""
    try:
        executable = read_executable(compiled)
        module = executable.module
        call = describe_call(traced, lowered, compiled, executable)
        program = GraphProgram(signatures.name, executable, options, _paths(executable, call, paths))
    except (CmdbufError, RuntimeError, ValueError) as error:
        # XLA's are the latter two: it does not serialize every program, one with host callbacks for example.
        said = error.message if isinstance(error, StatusError) else str(error)
        signatures.leave_to_xla(
            said if isinstance(error, CmdbufError) else f"{type(error).__name__}: {said}", module
        )
        return plain(*args, **kwargs)
    number = np.int64(signatures.add(program))

    def ours(*leaves: Any) -> Any:
        return call.emit(_TARGET, leaves, program=number)

    def native(*leaves: Any) -> Any:
        # The leaves are the arguments' own.
        return plain(*args, **kwargs)

    return jax.lax.platform_dependent(*leaves, default=native, **{platform: ours})


def _paths(executable: Executable, call: GraphCall, paths: tuple[str, ...]) -> dict[int, str]:
    indices = executable.parameter_allocations
    return {index: paths[position] for index, position in zip(indices, call.kept, strict=True)}


def _enter(platform: str, frame: CallFrame) -> None:
    program = PROGRAMS.get(frame.attribute("program"))
    if program is None:
        raise StatusError(
            StatusCode.FAILED_PRECONDITION, "the function was deleted before this call of it ran"
        )
    stream = 0 if platform == "cpu" else frame.stream
    program.run(frame.device_ordinal, stream, frame.argument_addresses, frame.result_addresses)


@functools.cache
def _register() -> None:
    # A CPU's is for simulated devices.
    for platform in ("CUDA", "cpu"):
        FfiHandler(_TARGET, functools.partial(_enter, platform), platform).register()


@functools.cache
def _device_count() -> int:
    return jax.local_device_count()


def _is_spread(tree: Any) -> bool:
    return any(
        isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1 for leaf in jax.tree.leaves(tree)
    )


@jax.jit
def _next(x: jax.Array) -> jax.Array:
    return x + 1


def _wait_for_handlers(platform: str) -> None:
    """Waits until every call that was dispatched has entered its handler: devices run programs in order."""
    try:
        devices = jax.local_devices(backend=platform)
    except RuntimeError:
        return  # JAX has no such platform, so nothing ran there
    jax.block_until_ready([_next(jax.device_put(np.int32(0), device)) for device in devices])  # type: ignore[no-untyped-call]


_LOCK = threading.Lock()
_RUNTIMES: list[CudaGraphRuntime] = []


def cuda_graph_runtime() -> CudaGraphRuntime:
    """The process's."""
    with _LOCK:
        if not _RUNTIMES:
            _RUNTIMES.append(CudaGraphRuntime())
        return _RUNTIMES[0]


def set_cuda_graph_runtime(runtime: CudaGraphRuntime | None) -> None:
    """Puts another in its place; None: a new one at the next use. Functions that were called keep theirs."""
    with _LOCK:
        _RUNTIMES[:] = [] if runtime is None else [runtime]
