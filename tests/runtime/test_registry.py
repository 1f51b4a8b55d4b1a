"""Many programs on one device: their remappings are listed, reset and dropped, and nothing goes wrong in
between.

The state machine at the end drives allocator, registry and scopes together with programs, buffers, failures
and threads drawn at random.
"""

from __future__ import annotations

import gc
import json
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from jax_cmdbuf.errors import InputError, StatusError
from jax_cmdbuf.events import EventLog
from jax_cmdbuf.runtime.gpu_executable import Injection
from jax_cmdbuf.runtime.guard import FIDELITY, Guarded
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS
from jax_cmdbuf.stream_executor.simulated import StreamMode
from xla_flags.options import CommandBufferUpdateMode as Mode


@pytest.fixture
def loaded(world, make):
    sequence = [make.command_buffer(make.kernel(1, [0], [1]))]
    return world.load([make.parameter(0), make.temp(1)], sequence, Mode.SKIP_PROFILED)


def test_snapshots_tell_phase_steps_and_the_verdict_on_each_allocation(world, loaded):
    assert world.registry.snapshots() == ()
    buffer = world.allocate()
    world.run(loaded, buffer)
    (snapshot,) = world.registry.snapshots()
    assert (snapshot.phase, snapshot.steps, snapshot.limit) == ("profiling", 1, 3)
    assert snapshot.persistent is None
    assert [each.state for each in snapshot.allocations] == ["profiling", "remapped"]
    for _ in range(4):
        world.run(loaded, buffer)
    (snapshot,) = world.registry.snapshots()
    assert (snapshot.phase, snapshot.executions, snapshot.failures) == ("active", 5, 0)
    assert snapshot.selected == snapshot.persistent == (0, 1)
    assert [each.state for each in snapshot.allocations] == ["remapped", "remapped"]
    assert snapshot.reserved_bytes == 4 << 20


def test_one_remapping_can_be_asked_for(world, loaded):
    assert world.registry.snapshot_of(loaded, world.executor) is None
    world.run(loaded, world.allocate())
    assert world.registry.snapshot_of(loaded, world.executor) == world.registry.snapshots()[0]
    assert world.registry.snapshot_of(world, world.executor) is None


def test_profiles_are_exported_as_json(world, loaded):
    world.run(loaded, world.allocate())
    exported = json.loads(world.registry.export_json())
    (profile,) = exported["profiles"]
    assert profile["module"] == "jit_test"
    assert profile["allocations"][0]["reason"] == "its address has not changed so far"


def test_after_a_reset_profiling_starts_again(world, loaded):
    buffer = world.allocate()
    for _ in range(5):
        world.run(loaded, buffer)
    assert world.registry.reset("jit_test") == 1
    assert world.registry.snapshots() == ()
    assert world.run(loaded, buffer).kinds == ["thunk_fallback", "profile_step"]


def test_resetting_a_module_that_is_not_there_names_those_that_are(world, loaded):
    world.run(loaded, world.allocate())
    with pytest.raises(InputError, match="'jit_other'; there are jit_test"):
        world.registry.reset("jit_other")
    with pytest.raises(InputError, match="there are none"):
        ProfileRegistry().reset("jit_other")


def test_a_reset_waits_for_the_running_execution_and_the_next_one_starts_afresh(world, loaded):
    buffer = world.allocate()
    world.run(loaded, buffer)
    remapping = world.registry.acquire(loaded, loaded.program, world.allocator, world.executor)
    resetting = threading.Thread(target=world.registry.reset)
    resetting.start()
    running = threading.Thread(target=lambda: world.run(loaded, buffer))
    running.start()
    remapping.lock.release()
    resetting.join()
    running.join()
    assert world.registry.snapshots()[0].steps in (1, 2)


def test_other_devices_have_a_remapping_of_their_own(world, make, new_world, loaded):
    other = new_world()
    other.registry = world.registry
    world.run(loaded, world.allocate())
    other.run(loaded, other.allocate())
    assert [snapshot.steps for snapshot in world.registry.snapshots()] == [1, 1]
    loaded.close()
    other.close()


def test_remappings_die_with_their_executables(world, make):
    class Owner:
        pass

    owner, program = Owner(), make.program([make.temp(0)], Mode.SKIP_TEMP)
    world.scope(owner, program, {})
    reservations = world.executor.memory.reservation_count
    del owner
    gc.collect()
    assert world.registry.snapshots() == ()
    world.scope(Owner(), program, {})
    gc.collect()
    world.registry.close()
    assert world.executor.memory.reservation_count < reservations


SIZES = (1000, 3 << 20)
# Failures of one kind in a run: when undoing a half-done step fails as well, no program can do anything about
# it.
MAKING = (
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemAddressReserve",
    "cuGraphInstantiate",
    "cuGraphLaunch",
)
RELEASING = ("cuMemUnmap", "cuMemRelease", "cuMemAddressFree", "cuStreamWriteValue64")
MOST_FAILURES = 40


# Shrinking a program of many rules takes minutes; the failing one as it was drawn is short enough to read.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


class Machine(RuleBasedStateMachine):
    """Random programs and callers on one device."""

    make = new_world = new_seen = None

    @initialize(
        mode=st.sampled_from([StreamMode.AUTO, StreamMode.ON_WAIT]),
        calls=st.sampled_from([MAKING, RELEASING]),
    )
    def start(self, mode, calls):
        self.world = type(self).new_world(mode)
        self.calls = calls
        self.buffers = []
        self.foreign, self.handles = {}, []
        for size in SIZES:
            memory = self.world.executor.create_allocation(size)
            reservation = self.world.executor.create_reservation(size)
            mapping = reservation.map_to(0, memory.size, memory)
            self.handles += [mapping, reservation, memory]
            self.foreign[size] = mapping.address.slice(0, size)
        self.known = {}
        self.transitions = {}

    @precondition(lambda self: len(self.world.loaded) < 4)
    @rule(data=st.data(), mode=st.sampled_from([Mode.ALWAYS_UPDATE, Mode.SKIP_TEMP, Mode.SKIP_PROFILED]))
    def load(self, data, mode):
        make, allocations, parameters = type(self).make, [], 0
        size = st.sampled_from(SIZES)
        kinds = data.draw(st.lists(st.sampled_from("ppaotc"), min_size=1, max_size=7))
        for index, kind in enumerate(kinds):
            bytes_ = data.draw(size)
            match kind:
                case "p":
                    allocations.append(make.parameter(index, parameters, bytes_))
                case "a":
                    flags = {"maybe_live_out": True, "is_parameter_aliased_with_output": True}
                    allocations.append(make.parameter(index, parameters, bytes_, **flags))
                case "o":
                    allocations.append(make.output(index, bytes_))
                case "t":
                    allocations.append(make.temp(index, bytes_))
                case _:
                    allocations.append(make.constant(index))
            parameters += kind in "pa"
        indices = st.lists(st.integers(0, len(kinds) - 1), max_size=3)
        thunks = [
            make.kernel(i, data.draw(indices), data.draw(indices))
            for i in range(data.draw(st.integers(2, 5)))
        ]
        sequence = [make.command_buffer(*thunks[:-1]), thunks[-1], make.kernel(9, [], [], kind="kCustomCall")]
        self.world.load(allocations, sequence, mode)

    @rule(size=st.sampled_from(SIZES))
    def allocate(self, size):
        with suppress(StatusError):
            self.buffers.append(self.world.allocate(size))

    @precondition(lambda self: self.buffers)
    @rule(data=st.data())
    def free(self, data):
        buffer = data.draw(st.sampled_from(self.buffers))
        with suppress(StatusError):
            self.world.free(buffer)
            self.buffers.remove(buffer)

    def arguments(self, data, loaded):
        """Live buffers of the right sizes, sometimes null, sometimes the same one twice."""
        chosen = []
        for index in loaded.parameters:
            size = loaded.program.allocations[index].size
            fitting = [buffer for buffer in self.buffers if buffer.size == size]
            if not fitting:
                try:
                    fitting = [self.world.allocate(size)]
                except StatusError:
                    return None
                self.buffers += fitting
            # The first ones mostly, so that addresses are stable often enough to be selected.
            usual = [fitting[0]] * 6
            chosen.append(data.draw(st.sampled_from([*usual, *fitting, self.foreign[size], NULL_ADDRESS])))
        return chosen

    @precondition(lambda self: self.world.loaded)
    @rule(
        data=st.data(),
        times=st.integers(1, 5),
        guarded=st.booleans(),
        failing=st.sampled_from([False] * 4 + [True]),
        kept=st.booleans(),
    )
    def run(self, data, times, guarded, failing, kept):
        loaded = data.draw(st.sampled_from(self.world.loaded))
        parameters = self.arguments(data, loaded)
        if parameters is None:
            return
        for _ in range(times):
            seen = self.world.run(
                loaded,
                *parameters,
                guard=Guarded() if guarded else FIDELITY,
                donated=frozenset() if kept else None,
                injection=Injection(failing=failing),
            )
            self.check(loaded, parameters, seen)

    def check(self, loaded, parameters, seen):
        self.transitions[loaded] = self.transitions.get(loaded, 0) + sum(
            event.kind.startswith("transition") for event in seen.events
        )
        assert self.transitions[loaded] <= 1
        if seen.persistent is not None:
            # Unknown may become known; known never becomes unknown.
            assert seen.persistent.known or not self.known.get(loaded, False)
            self.known[loaded] = seen.persistent.known
        for index, given in zip(loaded.parameters, parameters, strict=True):
            if seen.owning is not None and not loaded.program.allocations[index].maybe_live_out:
                assert seen.owning[index] == given
        if seen.outputs is not None:
            assert seen.outputs == tuple(seen.owning[index] for index in loaded.outputs)
            given = {NULL_ADDRESS, *self.buffers, *self.foreign.values()}
            new = set(seen.outputs) - given
            self.buffers += new

    @precondition(lambda self: self.world.loaded)
    @rule(data=st.data())
    def run_in_threads(self, data):
        programs = [data.draw(st.sampled_from(self.world.loaded)) for _ in range(2)]
        arguments = [self.arguments(data, loaded) for loaded in programs]
        if None in arguments:
            return
        seen = [type(self).new_seen(), type(self).new_seen()]
        logs = [EventLog(), EventLog()]

        def call(number):
            options = replace(self.world.options(seen[number]), sink=logs[number])
            with suppress(StatusError):
                seen[number].outputs = programs[number].execute(options, arguments[number]).outputs
            seen[number].events = tuple(logs[number].events)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Which of two runs of one program came first is not known; the one that knew the set came last.
        for number in sorted(
            range(2), key=lambda n: seen[n].persistent is not None and seen[n].persistent.known
        ):
            self.check(programs[number], arguments[number], seen[number])

    @rule(data=st.data(), nth=st.integers(1, 3))
    def fail(self, data, nth):
        self.world.executor.driver.fail(data.draw(st.sampled_from(self.calls)), nth)

    @rule(entries=st.integers(1, 3))
    def advance(self, entries):
        self.world.stream.advance(entries)

    @rule()
    def synchronize(self):
        with suppress(StatusError):
            self.world.allocator.synchronize_pending_operations(0)

    @precondition(lambda self: self.world.loaded)
    @rule(data=st.data())
    def evict(self, data):
        data.draw(st.sampled_from(self.world.loaded)).evict_command_buffers()

    @rule()
    def reset(self):
        with suppress(StatusError):
            self.world.registry.reset()
        self.known.clear()
        self.transitions.clear()

    @invariant()
    def live_buffers_have_memory_of_their_own(self):
        if not hasattr(self, "world"):
            return
        handles = [self.world.executor.memory.resolve(buffer) for buffer in self.buffers]
        assert None not in handles
        assert len({handle.handle for handle in handles}) == len(handles)
        active = self.world.allocator.statistics(0).active
        # A free that the timeline refuses twice in a row leaves its buffer to the allocator.
        refused = self.world.executor.driver.calls["cuStreamWriteValue64"] and self.calls is RELEASING
        assert active == len(self.buffers) or (refused and active > len(self.buffers))
        assert self.world.allocator.statistics(0).active_aliases == 0
        assert all(
            each.persistent is None or each.selected is not None for each in self.world.registry.snapshots()
        )

    def teardown(self):
        if not hasattr(self, "world"):
            return
        # Injected failures that were not used yet hit the clean-up, which can be repeated.
        for _ in range(MOST_FAILURES):
            try:
                for buffer in list(self.buffers):
                    self.world.free(buffer)
                    self.buffers.remove(buffer)
                self.world.close()
                for handle in self.handles:
                    handle.close()
            except StatusError:
                continue
            break
        assert self.world.executor.memory.is_empty


def test_random_programs_and_callers(make, new_world, new_seen):
    machine = type(
        "BoundMachine",
        (Machine,),
        {"make": make, "new_world": staticmethod(new_world), "new_seen": staticmethod(new_seen)},
    )
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=25, phases=PHASES))
