"""All remappings: (executable, device) -> ``Remapping``, listed, reset, exported, and dropped with their
executables.

Invariant: an executable is held weakly and told apart by identity; the registry's lock is never held while
waiting for an execution.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Protocol

from jax_cmdbuf.errors import InputError, StatusError
from jax_cmdbuf.runtime.remapping import Program, Remapping
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot, take_snapshot
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator

__all__ = ["LoadedExecutable", "ProfileRegistry"]


class LoadedExecutable(Protocol):
    """What the registry knows of a loaded program."""

    def evict_command_buffers(self) -> None:
        """Releases the device command buffers; they are recorded again at the next use."""


class _Closable(Protocol):
    def close(self) -> None:
        """Releases what it owns."""


class ProfileRegistry:
    """All remappings of a process: (executable, device) -> ``Remapping``.

    An executable is told apart by identity and held weakly: when it dies its remappings go, at the latest at
    the registry's next call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._remappings: dict[tuple[int, se.StreamExecutor], Remapping] = {}
        self._dead: deque[_Closable] = deque()
        self._loaded: weakref.WeakSet[LoadedExecutable] = weakref.WeakSet()

    def acquire(
        self,
        executable: object,
        program: Program,
        allocator: DeviceAddressVmmAllocator,
        executor: se.StreamExecutor,
    ) -> Remapping:
        """The remapping of ``executable`` on a device, with its lock taken; created at the first call."""
        while True:
            remapping = self._find_or_create(executable, program, allocator, executor)
            remapping.lock.acquire()
            if not remapping.is_closed:
                return remapping
            # It was reset while this thread waited.
            remapping.lock.release()

    def _find_or_create(
        self,
        executable: object,
        program: Program,
        allocator: DeviceAddressVmmAllocator,
        executor: se.StreamExecutor,
    ) -> Remapping:
        key = (id(executable), executor)
        found = self._remappings.get(key)
        if found is not None:
            return found
        with suppress(StatusError):
            self._bury()
        with self._lock:
            found = self._remappings.get(key)
            if found is None:
                found = self._remappings[key] = Remapping(program, allocator, executor)
                weakref.finalize(executable, partial(self._drop, key)).atexit = False
        return found

    def loaded(self, executable: LoadedExecutable, resources: _Closable) -> None:
        """A program was loaded.

        Args:
          executable: the program.
          resources: what must be closed when it dies without having been unloaded; must not refer to it.
        """
        with suppress(StatusError):
            self._bury()
        with self._lock:
            self._loaded.add(executable)
        weakref.finalize(executable, self._dead.append, resources).atexit = False

    def evict_others(self, executable: LoadedExecutable) -> None:
        """Releases the command buffers of all other programs.

        XLA does this whenever it makes a command buffer, to save device memory: programs that are still used
        record theirs again.
        """
        with self._lock:
            others = [each for each in self._loaded if each is not executable]
        for other in others:
            other.evict_command_buffers()

    def unload(self, executable: LoadedExecutable) -> None:
        """Forgets a program and its remappings on all devices; waits for its running executions."""
        with self._lock:
            self._loaded.discard(executable)
            keys = [key for key in self._remappings.copy() if key[0] == id(executable)]
            self._dead.extend(self._remappings.pop(key) for key in keys)
        self._bury()

    def snapshots(self) -> tuple[RemappingSnapshot, ...]:
        """Every remapping as it stands now; never waits for an execution."""
        return tuple(take_snapshot(remapping) for remapping in self._remappings.copy().values())

    def snapshot_of(self, executable: object, executor: se.StreamExecutor) -> RemappingSnapshot | None:
        """The remapping of one program on one device as it stands now; None before it has run there."""
        found = self._remappings.get((id(executable), executor))
        return take_snapshot(found) if found is not None else None

    def export_json(self) -> str:
        """All snapshots as JSON text: ``{"profiles": [...]}``."""
        return json.dumps({"profiles": [snapshot.to_json() for snapshot in self.snapshots()]}, indent=1)

    def reset(self, module: str | None = None) -> int:
        """Forgets remappings, so that profiling starts again; waits for their running executions.

        Args:
          module: only those of this HLO module; None: all.

        Returns:
          How many were forgotten.

        Raises:
          InputError: no remapping of that module exists.
        """
        self._bury()
        with self._lock:
            everything = self._remappings.copy()
            chosen = [key for key, each in everything.items() if module in (None, each.program.module)]
            if module is not None and not chosen:
                known = sorted({each.program.module for each in everything.values()})
                raise InputError(f"no profile of module {module!r}; there are {', '.join(known) or 'none'}")
            dropped = [each for key in chosen if (each := self._remappings.pop(key, None)) is not None]
            executables = list(self._loaded)
        self._dead.extend(dropped)
        # Command buffers hold addresses of the reservations that go.
        for executable in executables:
            executable.evict_command_buffers()
        self._bury()
        return len(dropped)

    def close(self) -> None:
        """Releases every remapping's reservation, and what dead programs left behind."""
        self.reset()
        self._bury()

    def _drop(self, key: tuple[int, se.StreamExecutor]) -> None:
        # Runs inside the garbage collector, in any thread: no lock may be taken here.
        remapping = self._remappings.pop(key, None)
        if remapping is not None:
            self._dead.append(remapping)

    def _bury(self) -> None:
        """Closes what is left over; what the driver refuses to release stays for the next time."""
        refused: StatusError | None = None
        for _ in range(len(self._dead)):
            try:
                resource = self._dead.popleft()
            except IndexError:
                break
            try:
                resource.close()
            except StatusError as error:
                self._dead.append(resource)
                refused = refused or error
        if refused is not None:
            raise refused
