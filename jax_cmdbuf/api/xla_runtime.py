"""``runtime="xla"``: functions run natively under XLA, and what they do is observed beside it.

XLA's own update mode is set for each function where that is possible. Invariants: a function's values,
errors and compilations are those of the jitted function; observing keeps no array alive, takes no lock while
the function runs, and compiles nothing; a call that an outer trace takes in is left to JAX.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.address_reader import UNREADABLE, Addresses, AddressReader, CallForm
from jax_cmdbuf.api.native_mode import NativeClient, UpdateModeStatus, native_client, update_mode_status
from jax_cmdbuf.api.native_plan import ReadExecutable, Signature, argument_leaves
from jax_cmdbuf.api.native_profile import COUNTED, ObservedProfile, ObservedProgram, XlaAllocator
from jax_cmdbuf.api.native_signatures import SignatureKey, Signatures
from jax_cmdbuf.api.probe import PROBE_LOG
from jax_cmdbuf.api.probed_operands import ProbedOperand, probed_operands
from jax_cmdbuf.api.signature import read_arguments
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot
from xla_flags.options import CommandBufferUpdateMode

if TYPE_CHECKING:
    from jax_cmdbuf.api.decorator import CommandBufferFunction

__all__ = ["NativeFunction", "XlaRuntime", "set_xla_runtime", "xla_runtime"]

_LOGGER = logging.getLogger("jax_cmdbuf")
_MOST_FINISHED = 4096


class XlaRuntime:
    """All natively running functions of the process. Safe to call from any thread.

    Attributes:
      registry: the observed profiles.
      client: what decides about update modes here.
    """

    def __init__(
        self, client: NativeClient | None = None, read_executable: ReadExecutable = Executable.from_compiled
    ) -> None:
        """A runtime without functions.

        Args:
          client: None: of this process.
          read_executable: gives the executable of a ``jax.stages.Compiled``.
        """
        self.registry = ProfileRegistry()
        self.client = client or native_client(jax.default_backend())
        self._read_executable = read_executable
        self._allocator = XlaAllocator(self.client.is_vmm)
        self._live: dict[int, list[ObservedProgram]] = {}
        self._retired: deque[list[ObservedProgram]] = deque()
        self._finished: deque[ObservedProfile] = deque(maxlen=_MOST_FINISHED)
        self._said: set[UpdateModeStatus] = set()

    def attach(self, function: CommandBufferFunction[..., Any], observe: bool = True) -> Callable[..., Any]:
        """What to call instead of the function's jitted function.

        Args:
          function: the decorated function.
          observe: whether to look at its calls.
        """
        status, options = update_mode_status(function.jitted, function.observed.mode, self.client)
        if status not in self._said and not status.is_effective:
            self._said.add(status)
            _LOGGER.warning("%s: %s", function.observed.name, status)
        native = _jax.jit_with_options(function.jitted, options) if options else function.jitted
        if observe and _jax.cache_size_of(native) is not None:
            return NativeFunction(self, function, native, status).__call__
        if not options:
            jitted: Callable[..., Any] = function.jitted
            return jitted
        return _unless_traced(native, function.jitted)

    def status(self, function: CommandBufferFunction[..., Any]) -> UpdateModeStatus:
        """What becomes of a function's update mode."""
        return update_mode_status(function.jitted, function.observed.mode, self.client)[0]

    def _enter(self, function: NativeFunction, programs: list[ObservedProgram]) -> None:
        key, live, retired = id(function), self._live, self._retired
        live[key] = programs

        def died() -> None:
            # Runs inside the garbage collector, in any thread: both operations are atomic.
            retired.append(live.pop(key))

        weakref.finalize(function, died).atexit = False

    def program(self, name: str, mode: CommandBufferUpdateMode, status: UpdateModeStatus) -> ObservedProgram:
        """A new program of a function of that name."""
        self._bury()
        return ObservedProgram(name, mode, status, self.registry, self._read_executable, self._allocator)

    def _bury(self) -> None:
        """Keeps what was observed of functions that died, and nothing else of them."""
        while self._retired:
            try:
                programs = self._retired.popleft()
            except IndexError:
                return  # another thread was quicker
            for program in programs:
                self._finished.extend(program.profiles(is_final=True))
                program.close()

    def observed(self) -> tuple[ObservedProfile, ...]:
        """Everything that was observed: of functions that are gone first, then of those that live."""
        self._bury()
        live = [program for programs in list(self._live.values()) for program in list(programs)]
        return (*self._finished, *(profile for program in live for profile in program.profiles()))

    @staticmethod
    def probed() -> tuple[ProbedOperand, ...]:
        """Where XLA itself had the operands of probes, whatever was observed from outside."""
        return probed_operands(PROBE_LOG.records())

    def snapshots(self) -> tuple[RemappingSnapshot, ...]:
        """All observed profiles, in the form that the simulated runtime has them."""
        return tuple(profile.snapshot for profile in self.observed())


def _unless_traced(native: Any, jitted: Any) -> Callable[..., Any]:
    """JAX refuses compiler options in a function that an outer one is traced over."""
    is_top_level = _jax.top_level_check()

    def call(*args: Any, **kwargs: Any) -> Any:
        return (native if is_top_level() else jitted)(*args, **kwargs)

    return call


class NativeFunction:
    """A jitted function whose calls are observed."""

    def __init__(
        self,
        runtime: XlaRuntime,
        function: CommandBufferFunction[..., Any],
        native: Any,
        status: UpdateModeStatus,
    ) -> None:
        self._runtime, self._status = runtime, status
        self._name, self._mode, self._names = function.observed.name, function.observed.mode, function.names
        self._jitted, self._native = function.jitted, native
        cache_size = _jax.cache_size_of(native)
        assert cache_size is not None
        self._cache_size = cache_size
        self._is_top_level = _jax.top_level_check()
        self._disable_jit = _jax.disable_jit_switch()
        self._lock = threading.RLock()
        self._signatures: Signatures[ObservedProgram] = Signatures(native)
        self._programs: list[ObservedProgram] = []
        # id of JAX's executable -> the executable, so that no other has that id, and its program.
        self._executables: dict[int, tuple[Any, ObservedProgram]] = {}
        runtime._enter(self, self._programs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the jitted function."""
        if not self._is_top_level() or self._disable_jit.value:
            return self._jitted(*args, **kwargs)
        size, signatures = self._cache_size(), self._signatures
        program = signatures.only if size == signatures.complete else None
        if program is None and (program := signatures.find(size, args, kwargs)) is None:
            return self._call_first(args, kwargs)
        trail = program.trail
        if len(trail) >= program.limit:
            program.settle()
        reader = program.reader
        before: Addresses | None = ()
        if reader is not None:
            try:
                before = reader.arguments(args, kwargs)
            except UNREADABLE:
                before = None  # a call of a new form, or one that JAX refuses
        try:
            result = self._native(*args, **kwargs)
        except BaseException:
            program.failed()
            raise
        if before is not None and self._cache_size() == size:
            trail.append(COUNTED if reader is None else (reader, before, reader.results(result)))
        elif (key := signatures.key(args, kwargs)) is not None:
            # Its signature was new after all, or JAX's cache was cleared.
            self._identify(key, None, args, kwargs, result)
        return result

    def _call_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = self._signatures.key(args, kwargs)
        if key is None:
            return self._native(*args, **kwargs)  # raises, and says why
        before = AddressReader(devices=_device_count((args, kwargs))).arguments(args, kwargs)
        result = self._native(*args, **kwargs)
        self._identify(key, before, args, kwargs, result)
        return result

    def _identify(
        self, key: SignatureKey, before: Addresses | None, args: tuple[Any, ...], kwargs: Any, result: Any
    ) -> None:
        """Finds out which executable a call of a new signature ran, and counts the call.

        Args:
          key: of the signature.
          before: addresses of all arguments, if they were read before the call; donated ones are gone now.
          args, kwargs, result: the call's.
        """
        arguments = read_arguments(self._native, self._names, args, kwargs)
        lowered = arguments.traced.lower()
        compiled = lowered.compile()  # JAX has it already
        executable: Any = compiled.runtime_executable()
        devices = tuple(device.id for device in executable.local_devices())
        reader = AddressReader(CallForm(args, kwargs, result), len(devices))
        leaves = argument_leaves(args, kwargs, self._signatures.static, compiled.input_shardings)
        with self._lock:
            program = self._program_of(executable)
            if self._signatures.get(key) not in (None, program):  # JAX's cache was cleared
                self._signatures.clear()
                self._executables = {id(executable): (executable, program)}
            self._signatures.add(key, program, self._cache_size(), args, kwargs)
        program.identify(Signature(lowered, compiled, arguments.paths, leaves), reader, devices)
        current = program.reader
        if program.is_decided or current is None:
            program.trail.append(COUNTED)
            return
        if before is None or len(before) != len(devices) * len(jax.tree.leaves((args, kwargs))):
            before = current.arguments(args, kwargs)
        program.trail.append((current, before, current.results(result)))

    def _program_of(self, executable: Any) -> ObservedProgram:
        _, program = self._executables.get(id(executable), (None, None))
        if program is None:
            program = self._runtime.program(self._name, self._mode, self._status)
            self._executables[id(executable)] = (executable, program)
            self._programs.append(program)
        return program


def _device_count(tree: Any) -> int:
    leaves = jax.tree.leaves(tree)
    counts = [len(leaf.sharding.addressable_devices) for leaf in leaves if isinstance(leaf, jax.Array)]
    return max(counts, default=1)


_LOCK = threading.Lock()
_RUNTIMES: list[XlaRuntime] = []


def xla_runtime() -> XlaRuntime:
    """The process's."""
    with _LOCK:
        if not _RUNTIMES:
            _RUNTIMES.append(XlaRuntime())
        return _RUNTIMES[0]


def set_xla_runtime(runtime: XlaRuntime | None) -> None:
    """Puts another in its place; None: a new one at the next use. Functions that were called keep theirs."""
    with _LOCK:
        _RUNTIMES[:] = [] if runtime is None else [runtime]
