"""Who watches decorated functions in this process, and how a simulated call begins and ends.

Invariant: there is one simulated runtime, because it stands for the machine's GPUs; it is made at first use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.cuda_graph_runtime import cuda_graph_runtime
from jax_cmdbuf.api.native_mode import UpdateModeStatus
from jax_cmdbuf.api.signature import Arguments, is_tracing, read_arguments
from jax_cmdbuf.api.simulated_runtime import SimulatedProgram, SimulatedRuntime
from jax_cmdbuf.api.xla_runtime import xla_runtime
from jax_cmdbuf.errors import CmdbufError

if TYPE_CHECKING:
    from jax_cmdbuf.api.decorator import CommandBufferFunction, PendingCall, Runtime, RuntimeName

__all__ = [
    "Simulation",
    "current_runtime",
    "native_call",
    "reset_simulation",
    "set_simulation",
    "simulation",
    "status_of",
]


class Simulation:
    """The :class:`Runtime` of ``runtime="simulated"``.

    Attributes:
      runtime: the simulated machine.
    """

    def __init__(self, runtime: SimulatedRuntime | None = None) -> None:
        self.runtime = runtime or SimulatedRuntime()
        self._is_top_level = _jax.top_level_check()

    def begin(
        self, function: CommandBufferFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PendingCall | None:
        """See ``Runtime``."""
        # A call with values alone may stand in an outer function's trace, too.
        if not self._is_top_level() or is_tracing((args, kwargs)) or jax.config.jax_disable_jit:
            return None
        try:
            arguments = read_arguments(function.jitted, function.names, args, kwargs)
        except CmdbufError as error:  # not the function's own, which its caller is to get
            self.runtime.cannot_simulate(function.observed, error)
            return None
        program = self.runtime.program(function.observed, arguments)
        if program is None:
            return None
        return _SimulatedPending(self.runtime, program, arguments)


class _SimulatedPending:
    def __init__(self, runtime: SimulatedRuntime, program: SimulatedProgram, arguments: Arguments) -> None:
        self._runtime, self._program, self._arguments = runtime, program, arguments

    def returned(self, result: Any) -> None:
        """See ``PendingCall``."""
        leaves = jax.tree.leaves(result)
        if is_tracing(leaves):
            return  # an outer trace has taken the call in; it ran nowhere
        if self._program.plan.effects:
            # Only user code can fail inside, and only waiting tells: a failed execution looks different.
            try:
                jax.block_until_ready(leaves)  # type: ignore[no-untyped-call]
                jax.effects_barrier()  # type: ignore[no-untyped-call]
            except jax.errors.JaxRuntimeError:
                self._runtime.finish(self._program, self._arguments, None)
                return
        self._runtime.finish(self._program, self._arguments, leaves)

    def failed(self, error: BaseException) -> None:
        """See ``PendingCall``."""
        # An argument that was refused never got to the device.
        if isinstance(error, jax.errors.JaxRuntimeError) and self._program.plan.effects:
            self._runtime.finish(self._program, self._arguments, None)


# Reentrant: a finalizer that runs here may call a decorated function.
_LOCK = threading.RLock()
_SIMULATIONS: list[Simulation] = []


def simulation() -> Simulation:
    """The process's simulated machine."""
    with _LOCK:
        if not _SIMULATIONS:
            made = Simulation()
            _SIMULATIONS[:] = _SIMULATIONS or [made]
        return _SIMULATIONS[0]


def set_simulation(simulation: Simulation | None) -> None:
    """Puts another in its place; None: a new one at the next use. The one that was is not closed."""
    with _LOCK:
        _SIMULATIONS[:] = [] if simulation is None else [simulation]


def reset_simulation() -> None:
    """Forgets every simulated program and buffer; decorated functions start again."""
    with _LOCK:
        found = list(_SIMULATIONS)
        _SIMULATIONS.clear()
    for each in found:
        each.runtime.close()


def current_runtime(name: RuntimeName) -> Runtime | None:
    """Who watches a function that asked for this runtime; None: nobody, or XLA runs it (``native_call``)."""
    return None if _is_native(name) else simulation()


def _is_native(name: RuntimeName) -> bool:
    return name in ("xla", "cuda_graph") or (name == "auto" and jax.default_backend() == "gpu")


def native_call(function: CommandBufferFunction[..., Any]) -> Callable[..., Any] | None:
    """What a function calls instead of its jitted function; None: it is watched by ``current_runtime``."""
    if function.runtime_name == "cuda_graph":
        return cuda_graph_runtime().attach(function)
    if _is_native(function.runtime_name):
        return xla_runtime().attach(function, function.observes)
    jitted: Callable[..., Any] = function.jitted
    return None if function.observes else jitted


def status_of(function: CommandBufferFunction[..., Any]) -> UpdateModeStatus:
    """What becomes of a function's update mode."""
    if function.runtime_name == "cuda_graph":
        return cuda_graph_runtime().status(function)
    if _is_native(function.runtime_name):
        return xla_runtime().status(function)
    mode = str(function.observed.mode)
    return UpdateModeStatus(mode, mode, runtime="simulated")
