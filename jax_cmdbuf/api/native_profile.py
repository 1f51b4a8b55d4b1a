"""The profile of one natively running program, from the addresses that its callers see.

XLA keeps its own profile inside the executable and shows it to nobody; this one is kept beside it, by the
same rules and from the same addresses as far as they can be seen. It is called *observed*. Invariants: an
execution is counted once, whatever threads do; what is kept refers to no array; the plan is made once, and
not before the profile is due or asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import add, ne
from typing import cast

from jax_cmdbuf.api.address_reader import Addresses, AddressReader
from jax_cmdbuf.api.native_mode import UpdateModeStatus
from jax_cmdbuf.api.native_plan import NativePlan, ReadExecutable, Signature, Tracked, make_native_plan
from jax_cmdbuf.errors import CmdbufError
from jax_cmdbuf.runtime.policy import PROFILE_STEPS
from jax_cmdbuf.runtime.profiling import is_due, observe
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.runtime.remapping import Remapping
from jax_cmdbuf.runtime.snapshot import RemappingSnapshot, take_snapshot
from jax_cmdbuf.stream_executor import interface as se
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator
from xla_flags.options import CommandBufferUpdateMode

__all__ = ["COUNTED", "ObservedProfile", "ObservedProgram", "XlaAllocator", "XlaDevice"]

_LOGGER = logging.getLogger("jax_cmdbuf")
# Calls that are read after the profile is decided: so many at first, then so many of each burst and pause.
_FIRST_BURST, _BURST, _PAUSE = 64, 16, 240


@dataclass(frozen=True, slots=True)
class ObservedProfile:
    """What was observed of one program on one device.

    Attributes:
      function: name of the decorated function.
      update_mode: what XLA itself does.
      snapshot: the observed profile; without allocations where the program was not planned.
      compared: executions after the profile was decided whose addresses were read and compared with the last
        ones; all of the first 64, later 16 of 256.
      moves: allocation -> in how many of them it lay elsewhere than before.
      problem: why there is no plan; "" when there is one, or it was not needed yet.
    """

    function: str
    update_mode: UpdateModeStatus
    snapshot: RemappingSnapshot
    compared: int
    moves: Mapping[int, int]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class XlaDevice:
    """A device that XLA drives; stands for its executor in the registry."""

    device_ordinal: int


class XlaAllocator:
    """What can be known of XLA's own allocator from outside."""

    # Of every NVIDIA GPU so far; a larger one would be a multiple.
    granularity = 2 << 20

    def __init__(self, is_vmm: bool) -> None:
        self._is_vmm = is_vmm

    def is_exact_address(self, device_ordinal: int, address: DeviceAddress) -> bool:
        """Whether the VMM allocator can have handed it out: it gives multiples of the granularity only.

        Without that allocator XLA profiles nothing; then the addresses are judged as if it had them all.
        """
        return not self._is_vmm or address.opaque % self.granularity == 0


# What read a call, and where its arrays were: before it the arguments, after it the result.
_Seen = tuple[AddressReader | None, Addresses, Addresses]
COUNTED: _Seen = (None, [], [])
"""Of a call whose addresses nobody read."""


class ObservedProgram:
    """One executable of a decorated function. Safe to call from any thread.

    A call costs its caller a look at ``limit`` and an ``append`` to ``trail``, which needs no lock;
    ``settle`` does the work for many calls at once. Once the profile is decided, calls are read in bursts:
    consecutive ones, so that a buffer that alternates between two addresses is seen to move.

    Attributes:
      reader: how its calls are read; it changes when the profile is decided. None: they are counted only.
      trail: the last calls that returned: their reader, and addresses of arguments and result.
      limit: when so many are in the trail, the next call begins with ``settle``.
      is_decided: whether the profile has been decided.
      failures: calls that raised.
      problem: why there is no plan.
    """

    def __init__(
        self,
        function: str,
        mode: CommandBufferUpdateMode,
        status: UpdateModeStatus,
        registry: ProfileRegistry,
        read_executable: ReadExecutable,
        allocator: XlaAllocator,
    ) -> None:
        self._function, self._mode, self._status = function, mode, status
        self._registry, self._read_executable, self._allocator = registry, read_executable, allocator
        # Reentrant: the garbage collector may run the user's finalizers, and they may call the function.
        self._lock = threading.RLock()
        self._signature: Signature | None = None
        self._devices: tuple[int, ...] = (0,)
        self._plan: NativePlan | None = None
        self._remappings: tuple[Remapping, ...] = ()
        self._fed = 0
        self._last: tuple[Addresses, Addresses] = ([], [])
        self._moves: tuple[list[int], list[int]] = ([], [])
        self._settled = self._compared = 0
        self._careful = AddressReader()
        self.reader: AddressReader | None = self._careful
        self.trail: deque[_Seen] = deque()
        self.limit = PROFILE_STEPS
        self.is_decided = False
        self.failures = 0
        self.problem = ""

    def identify(self, signature: Signature, reader: AddressReader, devices: Sequence[int]) -> None:
        """Says which signature it is and how to read its calls; again for another way to call it."""
        with self._lock:
            if self.is_decided:
                return
            if self._signature is None:
                self._signature, self._devices = signature, tuple(devices)
                self.reader = self._careful = reader
                return
            pairs = zip(self._signature.leaves, signature.leaves, strict=True)
            leaves = tuple(known if known is not None else new for known, new in pairs)
            self._signature = dataclasses.replace(signature, leaves=leaves)

    def failed(self) -> None:
        """A call raised."""
        with self._lock:
            self.failures += 1

    @property
    def executions(self) -> int:
        """Calls that returned."""
        with self._lock:
            return self._settled + len(self.trail)

    def settle(self) -> None:
        """Ends profiling, as XLA does at the beginning of the next execution; later: compares addresses."""
        with self._lock:
            if len(self.trail) < self.limit:
                return  # another thread was quicker
            if self.is_decided:
                self._compare()
                self.reader, self.limit = self._next(self.reader is self._careful)
                return
            self._feed()
            for remapping in self._remappings:
                if is_due(remapping.profile, remapping.program.classification):
                    remapping.decide()
            self._narrow()
            # Calls that overtook the decision in other threads are counted only, as their reader shows.
            self.is_decided, self.limit = True, _FIRST_BURST

    def _next(self, was_burst: bool) -> tuple[AddressReader | None, int]:
        return (None, _PAUSE) if was_burst else (self._careful, _BURST)

    def _compare(self) -> None:
        trail, careful = self.trail, self._careful
        seen = [trail.popleft() for _ in range(len(trail))]
        (arguments, results), (moved_arguments, moved_results) = self._last, self._moves
        for reader, before, after in seen:
            if reader is not careful:
                continue
            self._compared += 1
            if before != arguments:
                moved_arguments = [*map(add, moved_arguments, map(ne, arguments, before))]
                arguments = before
            if after != results:
                moved_results = [*map(add, moved_results, map(ne, results, after))]
                results = after
        self._settled += len(seen)
        self._last, self._moves = (arguments, results), (moved_arguments, moved_results)

    def _feed(self) -> None:
        """Plans if that has not been done, and tells the profiles what was seen since the last time."""
        if self._signature is None or self.problem:
            return
        if self._plan is None:
            try:
                self._make_plan(self._signature)
            except CmdbufError as error:
                self.problem = str(error)
                _LOGGER.warning("%s runs, but its profile is not kept: %s", self._function, error)
                return
        observations = [*itertools.islice(self.trail, PROFILE_STEPS)]
        while self._fed < len(observations):
            for number, remapping in enumerate(self._remappings):
                remapping.begin()
                if remapping.program.classification.policy.profile_steps:
                    remapping.profile = observe(
                        remapping.profile, self._candidates(remapping, number, observations)
                    )
            self._fed += 1

    def _make_plan(self, signature: Signature) -> None:
        self._plan = make_native_plan(signature, self._mode, self._registry, self._read_executable)
        loaded = self._plan.loaded
        # To the registry a device is a key, and an allocator somebody who knows its own addresses.
        allocator = cast(DeviceAddressVmmAllocator, self._allocator)
        found = []
        for ordinal in self._devices:
            executor = cast(se.StreamExecutor, XlaDevice(ordinal))
            found.append(self._registry.acquire(loaded, loaded.program, allocator, executor))
            found[-1].lock.release()
        self._remappings = tuple(found)

    def _candidates(
        self, remapping: Remapping, device: int, observations: Sequence[_Seen]
    ) -> dict[int, DeviceAddress]:
        """Candidate -> address in the next observation; only those that every observation has."""
        assert self._plan is not None
        candidates = frozenset(remapping.program.classification.candidates)
        addresses = {}
        for tracked in self._plan.tracked:
            if tracked.allocation in candidates:
                series = [self._address(seen, tracked, device) for seen in observations]
                size = remapping.program.allocations[tracked.allocation].size
                if None not in series:
                    addresses[tracked.allocation] = DeviceAddress(series[self._fed] or 0, size)
        return addresses

    def _address(self, seen: _Seen, tracked: Tracked, device: int) -> int | None:
        addresses = seen[2] if tracked.is_result else seen[1]
        place = device * (len(addresses) // len(self._devices)) + tracked.leaf
        return addresses[place] if place < len(addresses) else None

    def _narrow(self) -> None:
        """From now on only what command buffers use is read, on the first device."""
        tracked = self._plan.tracked if self._plan is not None else ()
        last = self.trail[PROFILE_STEPS - 1]
        chosen: list[list[int] | None] = []
        read: list[Addresses] = []
        for is_result, addresses in ((False, last[1]), (True, last[2])):
            rows = [each for each in tracked if each.is_result == is_result]
            leaves = [each.leaf for each in rows]
            # Not to choose is quicker than to choose all.
            are_all = leaves == [*range(len(addresses) // len(self._devices))]
            chosen.append(None if are_all else leaves)
            read.append([self._address(last, each, 0) for each in rows])
        self._last = (read[0], read[1])
        self._moves = ([0] * len(read[0]), [0] * len(read[1]))
        self.reader = self._careful = self._careful.narrowed(chosen[0], chosen[1])
        self._signature = None
        while self.trail:
            self.trail.popleft()
            self._settled += 1

    def profiles(self, is_final: bool = False) -> tuple[ObservedProfile, ...]:
        """What is known now, one entry per device.

        Args:
          is_final: no call will follow, so a profile is planned only if it is due.
        """
        with self._lock:
            if self.is_decided:
                self._compare()
            # One execution tells nothing about what stays, and a plan takes its time.
            elif len(self.trail) > 1 and (not is_final or len(self.trail) >= self.limit):
                self._feed()
            return tuple(self._profile(number) for number in range(len(self._devices)))

    def _profile(self, device: int) -> ObservedProfile:
        if self._remappings:
            snapshot = take_snapshot(self._remappings[device])
        else:
            snapshot = self._unplanned(self._devices[device])
        snapshot = dataclasses.replace(snapshot, executions=self.executions, failures=self.failures)
        moves = self._moves_by_allocation() if device == 0 else {}
        compared = self._compared if device == 0 else 0
        return ObservedProfile(self._function, self._status, snapshot, compared, moves, self.problem)

    def _moves_by_allocation(self) -> dict[int, int]:
        tracked = self._plan.tracked if self.is_decided and self._plan is not None else ()
        counted = self._moves[0] + self._moves[1]
        return dict(zip((each.allocation for each in tracked), counted, strict=True))

    def _unplanned(self, device: int) -> RemappingSnapshot:
        limit = PROFILE_STEPS if self._mode is CommandBufferUpdateMode.SKIP_PROFILED else 0
        steps = min(self.executions, limit)
        phase = "disabled" if not limit else "profiling"
        return RemappingSnapshot(
            f"jit_{self._function}", device, self._mode.name, phase, steps, limit, 0, 0, (), None, 0, (), ()
        )

    def close(self) -> None:
        """Forgets the program; its profiles leave the registry."""
        with self._lock:
            if self._plan is not None:
                self._plan.loaded.close()
            self._signature = None
