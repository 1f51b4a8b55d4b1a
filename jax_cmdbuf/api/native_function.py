"""A jitted function that XLA runs and that is looked at from outside, call by call.

Invariants: a call's values, errors and compilations are those of the jitted function; looking keeps no array
alive, takes no lock while the function runs, and compiles nothing; a call that an outer trace takes in is
left to JAX.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax

from jax_cmdbuf import _jax
from jax_cmdbuf.api.address_reader import UNREADABLE, Addresses, AddressReader, CallForm
from jax_cmdbuf.api.native_plan import Signature, argument_leaves
from jax_cmdbuf.api.native_profile import COUNTED, ObservedProgram
from jax_cmdbuf.api.native_signatures import SignatureKey, Signatures
from jax_cmdbuf.api.signature import read_arguments

__all__ = ["NativeFunction"]

# Read of a call whose addresses nobody wants.
_NOTHING: Addresses = []


class NativeFunction:
    """A jitted function whose calls are observed.

    Attributes:
      programs: one for each of its executables, in order of their first calls.
    """

    def __init__(
        self, jitted: Any, native: Any, names: tuple[str, ...], new_program: Callable[[], ObservedProgram]
    ) -> None:
        """Makes it.

        Args:
          jitted: what calls inside another trace go to.
          native: what others go to: the same function, perhaps with compiler options.
          names: of its positional parameters, as far as they are known.
          new_program: called once for each executable.
        """
        self._jitted, self._native, self._names, self._new_program = jitted, native, names, new_program
        cache_size = _jax.cache_size_of(native)
        assert cache_size is not None
        self._cache_size = cache_size
        self._is_top_level = _jax.top_level_check()
        self._disable_jit = _jax.disable_jit_switch()
        self._lock = threading.RLock()
        self._signatures: Signatures[ObservedProgram] = Signatures(native)
        self.programs: list[ObservedProgram] = []
        # id of JAX's executable -> the executable, so that no other has that id, and its program.
        self._executables: dict[int, tuple[Any, ObservedProgram]] = {}

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
        before: Addresses | None = _NOTHING
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
            program = self._new_program()
            self._executables[id(executable)] = (executable, program)
            self.programs.append(program)
        return program


def _device_count(tree: Any) -> int:
    leaves = jax.tree.leaves(tree)
    counts = [len(leaf.sharding.addressable_devices) for leaf in leaves if isinstance(leaf, jax.Array)]
    return max(counts, default=1)
