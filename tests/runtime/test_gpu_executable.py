"""Whole executions: buffers in, buffers out, nothing left behind."""

from __future__ import annotations

import gc
import threading

import pytest

from jax_cmdbuf.errors import InputError, StatusError
from jax_cmdbuf.events import NO_SINK, EventLog
from jax_cmdbuf.executable.executable import Constant, Executable
from jax_cmdbuf.runtime.buffer_allocations import PersistentSet
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable, Injection, execute_once
from jax_cmdbuf.runtime.guard import Guarded
from jax_cmdbuf.stream_executor.device_address import NULL_ADDRESS
from xla_flags.options import CommandBufferUpdateMode as Mode

MODES = [Mode.ALWAYS_UPDATE, Mode.SKIP_TEMP, Mode.SKIP_PROFILED]


@pytest.fixture
def two_gemms(world, make):
    """(a @ b) @ c as XLA compiles it: two products through one temporary."""

    def load(mode):
        allocations = [
            make.output(0, 65536),
            *(make.parameter(i, i - 1, 65536) for i in (1, 2, 3)),
            make.temp(4, 4 << 20),
        ]
        thunks = (make.kernel(1, [1, 2], [4]), make.kernel(2, [4, 3], [0]))
        return world.load(allocations, [make.command_buffer(*thunks)], mode)

    return load


def test_two_gemms_through_profiling_transition_and_remapping(world, two_gemms):
    loaded = two_gemms(Mode.SKIP_PROFILED)
    parameters = [world.allocate(65536) for _ in range(3)]
    seen = [world.run_and_free(loaded, *parameters) for _ in range(6)]
    assert [each.kinds for each in seen[:3]] == [["thunk_fallback", "profile_step"]] * 3
    assert seen[3].kinds == [
        "transition_active",
        "reserve",
        "execute_remapped",
        "record_create",
        "execute_command_buffer",
    ]
    assert [each.kinds for each in seen[4:]] == [["execute_remapped", "execute_command_buffer"]] * 2
    assert seen[3].events[0].selected == 4
    assert seen[5].persistent == PersistentSet(range(5))
    assert world.reservation_mappings() == 0
    assert world.allocator.statistics(0).active == 3


def test_skip_temp_remaps_from_the_first_run_and_always_update_never(world, two_gemms):
    parameters = [world.allocate(65536) for _ in range(3)]
    kinds = world.run_and_free(two_gemms(Mode.SKIP_TEMP), *parameters).kinds
    assert kinds == ["reserve", "execute_remapped", "record_create", "execute_command_buffer"]
    kinds = world.run_and_free(two_gemms(Mode.ALWAYS_UPDATE), *parameters).kinds
    assert kinds == ["record_create", "execute_command_buffer"]


class Pool:
    """An allocator that is no VMM allocator: every buffer is foreign memory."""

    def __init__(self, executor):
        self.allocate = lambda ordinal, size: executor.allocate_foreign(size)
        self.deallocate = lambda ordinal, address: executor.free_foreign(address)


@pytest.mark.parametrize("mode", MODES)
def test_without_a_vmm_allocator_every_mode_is_always_update(world, two_gemms, mode):
    loaded = two_gemms(mode)
    pool = Pool(world.executor)
    parameters = [pool.allocate(0, 65536) for _ in range(3)]
    for run in range(5):
        log = EventLog()
        outputs = loaded.execute(RunOptions(pool, world.stream, log), parameters).outputs
        kinds = [event.kind for event in log.events]
        assert kinds[-1] == "execute_command_buffer"
        assert kinds[0] == ("update_begin" if run else "record_create")
        assert "reserve" not in kinds
        for address in (*outputs,):
            pool.deallocate(0, address)
    for address in parameters:
        pool.deallocate(0, address)


def test_a_wrong_number_of_arguments_is_refused(world, two_gemms):
    with pytest.raises(InputError, match="takes 3 buffers, 1 were given"):
        two_gemms(Mode.ALWAYS_UPDATE).execute(world.options(object()), [NULL_ADDRESS])


@pytest.mark.parametrize("mode", MODES)
def test_results_can_have_buffers_of_the_caller(world, two_gemms, mode):
    loaded = two_gemms(mode)
    *parameters, result = (world.allocate(65536) for _ in range(4))
    options = RunOptions(world.allocator, world.stream, NO_SINK)
    for run in range(5):
        if run == 2:
            world.allocator.deallocate(0, result)
            result = world.allocate(65536)
        outputs = loaded.execute(options, parameters, results=[result]).outputs
        assert outputs == (result,)
        assert world.allocator.statistics(0).active == 4
    with pytest.raises(InputError, match="returns 1 buffers, 0 were given"):
        loaded.execute(options, parameters, results=[])


def test_a_result_in_an_arguments_memory_must_be_given_there(world, make):
    allocations = [make.parameter(0, maybe_live_out=True, is_parameter_aliased_with_output=True)]
    loaded = world.load(allocations, [make.command_buffer(make.kernel(1, [0], [0]))], Mode.ALWAYS_UPDATE)
    buffer, other = world.allocate(), world.allocate()
    options = RunOptions(world.allocator, world.stream, NO_SINK)
    assert loaded.execute(options, [buffer], results=[buffer]).outputs == (buffer,)
    with pytest.raises(InputError, match=r"result 0 of .* is the memory of an argument"):
        loaded.execute(options, [buffer], results=[other])


@pytest.mark.parametrize("mode", MODES)
def test_a_failing_custom_call_frees_everything_and_is_told(world, make, mode):
    allocations = [make.parameter(0), make.output(1), make.temp(2)]
    sequence = [
        make.command_buffer(make.kernel(1, [0], [2])),
        make.kernel(2, [2], [2], kind="kCustomCall"),
        make.command_buffer(make.kernel(3, [2], [1])),
    ]
    loaded = world.load(allocations, sequence, mode)
    buffer = world.allocate()
    seen = world.run(loaded, buffer, injection=Injection(failing=True, message="no"))
    assert seen.error.message == "no"
    assert seen.kinds[-1] == "error"
    assert (seen.events[-1].code, seen.events[-1].message) == ("INTERNAL", "no")
    assert "profile_step" not in seen.kinds
    assert seen.kinds.count("execute_command_buffer") + seen.kinds.count("thunk_fallback") == 1
    freed = [event.address for event in seen.events if event.kind == "deallocate"]
    # The temporary first, then what would have been the result.
    assert freed == [seen.owning[2].opaque, seen.owning[1].opaque]
    assert world.allocator.statistics(0).active == 1
    assert world.run_and_free(loaded, buffer).error is None


def test_a_later_custom_call_can_be_the_one_that_fails(world, make):
    sequence = [
        make.kernel(1, [0], [1], kind="kCustomCall"),
        make.command_buffer(make.kernel(2, [0], [1])),
        make.kernel(3, [0], [1], kind="kCustomCall"),
    ]
    loaded = world.load([make.parameter(0), make.output(1)], sequence, Mode.ALWAYS_UPDATE)
    seen = world.run(loaded, world.allocate(), injection=Injection(failing=True, failing_call=2))
    assert seen.kinds == ["record_create", "execute_command_buffer", "error"]


def test_a_null_argument_that_should_have_bytes_is_refused(world, two_gemms):
    loaded = two_gemms(Mode.SKIP_TEMP)
    seen = world.run(loaded, world.allocate(65536), NULL_ADDRESS, world.allocate(65536))
    assert seen.error.code.name == "FAILED_PRECONDITION"
    assert "parameter 1 is null" in seen.error.message


def test_a_donated_parameter_is_the_result_and_a_kept_one_is_copied(world, make):
    allocations = [
        make.parameter(0, maybe_live_out=True, is_parameter_aliased_with_output=True),
        make.parameter(1),
    ]
    loaded = world.load(allocations, [make.command_buffer(make.kernel(1, [0, 1], [0]))], Mode.ALWAYS_UPDATE)
    state, other = world.allocate(), world.allocate()
    assert world.run(loaded, state, other).outputs == (state,)
    assert world.run(loaded, state, other, donated=frozenset({0})).outputs == (state,)
    kept = world.run(loaded, state, other, donated=frozenset())
    assert kept.outputs == (kept.owning[0],)
    assert kept.outputs[0] not in (state, other)
    world.free(kept.outputs[0])
    world.executor.driver.fail("cuGraphLaunch")
    assert world.run(loaded, state, other, donated=frozenset()).error is not None
    assert world.allocator.statistics(0).active == 2


def test_constants_keep_their_address_and_are_persistent(world, make):
    allocations = [make.parameter(0), make.constant(1), make.constant(2, 300), make.output(3)]
    loaded = world.load(
        allocations, [make.command_buffer(make.kernel(1, [0, 1, 2], [3]))], Mode.ALWAYS_UPDATE
    )
    buffer = world.allocate()
    seen = [world.run_and_free(loaded, buffer) for _ in range(2)]
    assert seen[0].owning[1] == seen[1].owning[1]
    assert seen[0].owning[2].opaque % 256 == 0
    assert not seen[0].owning[1].overlaps(seen[0].owning[2])
    assert seen[0].persistent == PersistentSet([1, 2])


def test_results_are_leaves_in_order_and_the_tuple_table_is_freed(world, make):
    from jax_cmdbuf.executable.buffers import BufferAllocation
    from jax_cmdbuf.executable.executable import Output

    allocations = (
        make.output(0),
        BufferAllocation(1, 16, is_tuple=True, maybe_live_out=True),
        make.output(2),
        make.parameter(3, 0),
    )
    sequence = [make.command_buffer(make.kernel(1, [3], [0, 2]))]
    executable = Executable(
        "jit_pair",
        allocations,
        tuple(sequence),
        outputs=(Output((), 1), Output((1,), 0), Output((0,), 2)),
        constants=(Constant("c", 9),),
        parameter_names=("state",),
    )
    loaded = GpuExecutable(executable, make.converted(sequence), Mode.ALWAYS_UPDATE, world.registry)
    seen = world.run(loaded, world.allocate())
    assert seen.outputs == (seen.owning[2], seen.owning[0])
    assert world.allocator.statistics(0).active == 3
    assert loaded.program.paths[3] == "state"
    assert loaded.program.paths[0] == "result[1]"
    loaded.close()


def test_loading_a_program_with_command_buffers_evicts_those_of_others(world, make, two_gemms):
    first = two_gemms(Mode.ALWAYS_UPDATE)
    parameters = [world.allocate(65536) for _ in range(3)]
    world.run_and_free(first, *parameters)
    world.load([make.parameter(0)], [make.kernel(1, [0], [])], Mode.ALWAYS_UPDATE)
    assert "record_create" not in world.run_and_free(first, *parameters).kinds
    two_gemms(Mode.ALWAYS_UPDATE)
    assert world.run_and_free(first, *parameters).kinds[0] == "record_create"
    assert "record_create" not in world.run_and_free(first, *parameters).kinds


def test_a_program_that_is_dropped_leaves_nothing_behind(world, make):
    loaded = GpuExecutable(
        make.executable([make.temp(0), make.constant(1)], ()),
        make.converted([make.command_buffer(make.kernel(1, [1], [0]))]),
        Mode.SKIP_TEMP,
        world.registry,
    )
    world.run(loaded)
    assert len(world.registry.snapshots()) == 1
    del loaded
    gc.collect()
    assert world.registry.snapshots() == ()


def test_execute_once_returns_what_happened(world, two_gemms):
    loaded = two_gemms(Mode.SKIP_TEMP)
    options = RunOptions(world.allocator, world.stream, NO_SINK)
    parameters = [world.allocate(65536) for _ in range(3)]
    outputs, events = execute_once(loaded, options, parameters)
    assert outputs is not None
    assert events[-1].kind == "execute_command_buffer"
    world.free(outputs[0])
    world.executor.driver.fail("cuGraphLaunch")
    log = EventLog()
    options = RunOptions(world.allocator, world.stream, log)
    outputs, events = execute_once(loaded, options, parameters)
    assert outputs is None
    assert events[-1].kind == "error"
    assert tuple(log.events) == events


def test_threads_share_one_program_and_the_transition_happens_once(world, two_gemms):
    loaded = two_gemms(Mode.SKIP_PROFILED)
    parameters = [world.allocate(65536) for _ in range(3)]
    errors = []

    def call():
        for _ in range(10):
            try:
                outputs = loaded.execute(
                    RunOptions(world.allocator, world.stream, world.log), parameters
                ).outputs
                world.free(outputs[0])
            except StatusError as error:
                errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    kinds = [event.kind for event in world.log.drain()]
    assert kinds.count("transition_active") == 1
    assert kinds.count("profile_step") == 3
    assert kinds.count("thunk_fallback") == 3
    assert kinds.count("execute_command_buffer") == 37


def test_guarded_an_address_that_moves_often_is_demoted_once(world, two_gemms):
    loaded = two_gemms(Mode.SKIP_PROFILED)
    parameters = [world.allocate(65536) for _ in range(3)]
    spare = world.allocate(65536)
    for _ in range(4):
        world.run_and_free(loaded, *parameters, guard=Guarded())
    moving = [
        world.run_and_free(loaded, spare if run % 2 else parameters[0], *parameters[1:], guard=Guarded())
        for run in range(1, 8)
    ]
    demotions = [event for seen in moving for event in seen.events if event.kind == "demote"]
    assert [demotion.allocation for demotion in demotions] == [1]
    assert "changed 3 times" in demotions[0].reason
    (snapshot,) = world.registry.snapshots()
    assert [demotion.allocation for demotion in snapshot.demotions] == [1]
    assert snapshot.allocations[1].state == "demoted"
    # From then on its address is compared, and nothing is mapped anew.
    maps = world.executor.driver.calls["cuMemMap"]
    assert world.run_and_free(loaded, *parameters, guard=Guarded()).kinds[:2] == [
        "execute_remapped",
        "update_begin",
    ]
    assert world.executor.driver.calls["cuMemMap"] == maps


@pytest.mark.parametrize("changed", [0, 1, 3])
def test_in_the_active_phase_the_driver_is_called_once_per_changed_address(world, make, changed):
    allocations = [*(make.parameter(i, size=65536) for i in range(4)), make.temp(4, 4 << 20)]
    loaded = world.load(allocations, [make.command_buffer(make.kernel(1, range(4), [4]))], Mode.SKIP_PROFILED)
    first, other = ([world.allocate(65536) for _ in range(4)] for _ in range(2))
    for _ in range(5):
        world.run(loaded, *first)
    calls = world.executor.driver.calls
    before = calls.copy()
    seen = world.run(loaded, *other[:changed], *first[changed:])
    made = calls - before
    assert [made[call] for call in ("cuMemMap", "cuMemUnmap", "cuMemSetAccess")] == [changed] * 3
    assert made["cuMemCreate"] == 0
    assert made["cuGraphLaunch"] == 1
    # The command buffer sees none of it.
    assert seen.kinds == ["execute_remapped", "execute_command_buffer"]
