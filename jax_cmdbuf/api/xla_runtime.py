"""``runtime="xla"``: functions run natively under XLA, and what they do is observed beside it.

XLA's own update mode is set for each function where that is possible. Invariants: a function's values,
errors and compilations are those of the jitted function; observing keeps no array alive, takes no lock while
the function runs, and compiles nothing; a call that an outer trace takes in is left to JAX.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.native_function import NativeFunction
from jax_cmdbuf.api.native_mode import NativeClient, UpdateModeStatus, native_client, update_mode_status
from jax_cmdbuf.api.native_plan import ReadExecutable
from jax_cmdbuf.api.native_profile import ObservedProfile, ObservedProgram, XlaAllocator
from jax_cmdbuf.api.probe import PROBE_LOG
from jax_cmdbuf.api.probed_operands import ProbedOperand, probed_operands
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot
from xla_flags.options import CommandBufferUpdateMode

if TYPE_CHECKING:
    from jax_cmdbuf.api.decorator import CommandBufferFunction

__all__ = ["XlaRuntime", "set_xla_runtime", "xla_runtime"]

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
            name, mode = function.observed.name, function.observed.mode
            make = functools.partial(self._new_program, name, mode, status)
            observed = NativeFunction(function.jitted, native, function.names, make)
            self._enter(observed)
            return observed.__call__
        if not options:
            jitted: Callable[..., Any] = function.jitted
            return jitted
        return _unless_traced(native, function.jitted)

    def status(self, function: CommandBufferFunction[..., Any]) -> UpdateModeStatus:
        """What becomes of a function's update mode."""
        return update_mode_status(function.jitted, function.observed.mode, self.client)[0]

    def _enter(self, function: NativeFunction) -> None:
        key, live, retired = id(function), self._live, self._retired
        live[key] = function.programs

        def died() -> None:
            # Runs inside the garbage collector, in any thread: both operations are atomic.
            retired.append(live.pop(key))

        weakref.finalize(function, died).atexit = False

    def _new_program(
        self, name: str, mode: CommandBufferUpdateMode, status: UpdateModeStatus
    ) -> ObservedProgram:
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
