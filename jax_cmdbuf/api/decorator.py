"""``command_buffer``: a jitted function whose calls are watched, or simulated, for command buffers.

Invariant: to its caller the decorated function is the jitted one: same values, same errors, same stages, and
nothing but that while JAX traces it.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

import jax

from jax_cmdbuf.api import defaults
from jax_cmdbuf.api.gpu_plan import GivenPlan
from jax_cmdbuf.api.native_mode import UpdateModeStatus
from jax_cmdbuf.api.observation import current_runtime, native_call, status_of
from jax_cmdbuf.api.simulated_runtime import Observed
from jax_cmdbuf.errors import InputError
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["CommandBufferFunction", "PendingCall", "Runtime", "RuntimeName", "command_buffer"]

_P = ParamSpec("_P")
_R = TypeVar("_R", covariant=True)


class RuntimeName(StrEnum):
    """Who runs, or simulates, the command buffers of a decorated function."""

    AUTO = "auto"
    """XLA on a GPU, else simulated."""
    XLA = "xla"
    """XLA's own command buffers on the process's GPU."""
    SIMULATED = "simulated"
    """The process's backend computes the values; what the target GPU would do is simulated."""
    CUDA_GRAPH = "cuda_graph"
    """CUDA graphs of our own on the process's GPU, in every update mode; the rest is left to XLA."""


class PendingCall(Protocol):
    """A call that has begun; exactly one of its methods is called, once."""

    def returned(self, result: Any) -> None:
        """The call returned this."""

    def failed(self, error: BaseException) -> None:
        """The call raised this."""


class Runtime(Protocol):
    """What watches the calls of decorated functions."""

    def begin(
        self, function: CommandBufferFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PendingCall | None:
        """A call begins; None: nobody needs to know how it ends."""


class CommandBufferFunction(Generic[_P, _R]):
    """A jitted function whose calls a :class:`Runtime` watches.

    Attributes:
      jitted: the function that ``jax.jit`` made.
      names: of its positional parameters, as far as they are known.
      runtime_name: who was asked to run it.
      observes: whether its calls are looked at.
    """

    __slots__ = ("__dict__", "__weakref__", "_native")
    _native: Callable[..., Any]

    def __init__(
        self,
        jitted: Any,
        make_observed: Callable[[], Observed],
        runtime: RuntimeName,
        observe: bool = True,
    ) -> None:
        functools.update_wrapper(self, jitted)
        # Whatever was jitted around a decorated function has that function's attributes.
        self.__dict__.pop("_observed", None)
        self.jitted = jitted
        self._make_observed = make_observed
        self.names = _parameter_names(jitted)
        self.runtime_name = runtime
        self.observes = observe

    @property
    def observed(self) -> Observed:
        """Its name, update mode and target.

        Defaults are read when this is first asked for, as by the first call: a program may parse its command
        line, and set XLA_FLAGS, after its functions are decorated.
        """
        found: Observed | None = self.__dict__.get("_observed")
        return found or self.__dict__.setdefault("_observed", self._make_observed())

    @property
    def update_mode_status(self) -> UpdateModeStatus:
        """What becomes of the update mode that was asked for; starts JAX's backends."""
        return status_of(self)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Calls the jitted function."""
        native = self._find_native()
        if native is not None:
            return native(*args, **kwargs)  # type: ignore[no-any-return]
        runtime = current_runtime(self.runtime_name)
        pending = runtime.begin(self, args, kwargs) if runtime is not None else None
        try:
            result: _R = self.jitted(*args, **kwargs)
        except BaseException as error:
            if pending is not None:
                pending.failed(error)
            raise
        if pending is not None:
            pending.returned(result)
        return result

    def _find_native(self) -> Callable[..., Any] | None:
        """What XLA's runtime calls for this function; None: the function is simulated."""
        with _FIRST_CALL:
            if not isinstance(self, _CalledNatively):
                native = native_call(self)
                if native is None:
                    return None
                self._native = native
                self.__class__ = _CalledNatively
            return self._native

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A bound method, where the function was decorated in a class."""
        return self if instance is None else types.MethodType(self, instance)

    def lower(self, *args: _P.args, **kwargs: _P.kwargs) -> jax.stages.Lowered:
        """As of the jitted function. It stands here so that this is a ``jax.stages.Wrapped``."""
        return self.jitted.lower(*args, **kwargs)  # type: ignore[no-any-return]

    def trace(self, *args: _P.args, **kwargs: _P.kwargs) -> jax.stages.Traced:
        """As of the jitted function; see ``lower``."""
        return self.jitted.trace(*args, **kwargs)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        # `eval_shape`, `clear_cache` and whatever else jitted functions have.
        if name == "jitted":
            raise AttributeError(name)  # not constructed yet
        return getattr(self.jitted, name)

    def __repr__(self) -> str:
        return f"<command_buffer {self.jitted!r}>"


class _CalledNatively(CommandBufferFunction[_P, _R]):
    """One whose runtime is XLA's: calling it calls what ``_native`` holds, with no frame of Python's between.

    Python takes ``__call__`` from the class; a slot's descriptor gives each object its own.
    """

    __slots__ = ()
    __call__ = CommandBufferFunction.__dict__["_native"]


# Held while JAX's backends start; reentrant, since a plugin may call a decorated function then.
_FIRST_CALL = threading.RLock()


@overload
def command_buffer(fun: Callable[_P, _R], /, **options: Any) -> CommandBufferFunction[_P, _R]: ...
@overload
def command_buffer(
    fun: None = None, /, **options: Any
) -> Callable[[Callable[_P, _R]], CommandBufferFunction[_P, _R]]: ...
def command_buffer(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    update_mode: CommandBufferUpdateMode | str | None = None,
    runtime: RuntimeName | str | None = None,
    target: str | None = None,
    plan: GivenPlan | None = None,
    observe: bool | None = None,
    **jit_options: Any,
) -> Any:
    """Jits a function and keeps the books of its command buffers; use it bare or with options.

    ::

        @jax_cmdbuf.command_buffer(update_mode="SKIP_PROFILED", donate_argnums=0)
        def step(state, batch): ...

    Args:
      fun: a function, or one that ``jax.jit`` has made already.
      update_mode: "ALWAYS_UPDATE", "SKIP_TEMP" or "SKIP_PROFILED"; None: ``JAX_CMDBUF_MODE``, else the one in
        ``XLA_FLAGS``, else ALWAYS_UPDATE.
      runtime: "auto", "xla", "simulated" or "cuda_graph"; see :class:`RuntimeName`. None:
        ``JAX_CMDBUF_RUNTIME``, else "auto".
      target: the GPU to simulate: a name such as "h200" or a file of a target's description; None:
        ``JAX_CMDBUF_TARGET``, else "h200".
      plan: what to simulate instead of compiling for the target: a serialized executable, or its file.
      observe: False: the function runs as it is and nothing is kept of its calls, but XLA's update mode is
        set all the same; None: ``JAX_CMDBUF_OBSERVE``, else True.
      jit_options: whatever ``jax.jit`` takes: ``donate_argnums``, ``static_argnums``, ...

    Raises:
      InputError: an option has no such value, or ``jit_options`` for a function that is jitted already.
    """
    if fun is None:
        ours = {"update_mode": update_mode, "runtime": runtime, "target": target, "plan": plan}
        return functools.partial(command_buffer, **ours, observe=observe, **jit_options)
    if not callable(fun):
        raise InputError(f"command_buffer decorates a function, not {fun!r}")
    name = defaults.default_runtime() if runtime is None else defaults.runtime_named(runtime, "runtime")
    mode = None if update_mode is None else defaults.update_mode_named(str(update_mode), "update_mode")
    if isinstance(fun, CommandBufferFunction):
        fun = fun.jitted
    jitted = _jit(fun, jit_options)
    function = getattr(fun, "__name__", None) or type(fun).__name__
    observes = defaults.default_observe() if observe is None else observe
    make_observed = functools.partial(_observed, function, mode, target, plan)
    return CommandBufferFunction(jitted, make_observed, RuntimeName(name), observes)


def _observed(
    function: str, mode: CommandBufferUpdateMode | None, target: str | None, plan: GivenPlan | None
) -> Observed:
    return Observed(
        function, mode or defaults.default_update_mode(), target or defaults.default_target(), plan
    )


def _jit(fun: Any, options: dict[str, Any]) -> Any:
    if not (hasattr(fun, "lower") and hasattr(fun, "trace")):
        return jax.jit(fun, **options)
    if options:
        raise InputError(
            f"{getattr(fun, '__name__', fun)} is jitted already: give {', '.join(sorted(options))} to jax.jit"
        )
    return fun


def _parameter_names(function: Any) -> tuple[str, ...]:
    """Names of the positional parameters; none where the function does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)
