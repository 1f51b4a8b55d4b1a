from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from jax_cmdbuf.api.graph_program import NOT_VMM, GraphProgram, ProgramOptions
from jax_cmdbuf.api.session import SimulatedDevice, simulated_device
from jax_cmdbuf.errors import StatusError
from jax_cmdbuf.runtime.guard import Guarded
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from tests.api.graph_programs import recorded
from xla_flags.options import CommandBufferUpdateMode as Mode

BYTES = 128 * 128 * 4


class Xla:
    """What XLA does around a program: it hands out buffers and calls the handler."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.allocator = DeviceAddressVmmAllocator([DeviceConfig(device.stream)])

    def allocate(self, size: int = BYTES) -> DeviceAddress:
        return self.allocator.allocate(0, size)

    def free(self, address: DeviceAddress) -> None:
        self.allocator.deallocate(0, address)

    def call(
        self,
        program: GraphProgram,
        arguments: list[DeviceAddress],
        results: list[DeviceAddress] | None = None,
    ) -> list[str]:
        """Runs the program; returns the kinds of events. Results are freed at once where none are given."""
        before = program.events.counts.copy()
        made = [self.allocate()] if results is None else []
        addresses = [[each.opaque for each in buffers] for buffers in (arguments, results or made)]
        try:
            program.run(0, 7, *addresses)
        finally:
            for address in made:
                self.free(address)
        return sorted((program.events.counts - before).elements())


@pytest.fixture
def xla() -> Iterator[Xla]:
    device = simulated_device()
    xla = Xla(device)
    yield xla
    xla.allocator.close()
    assert device.executor.memory.is_empty
    assert device.executor.memory.needless_unmaps == 0


@pytest.fixture
def load(xla: Xla) -> Iterator[Callable[..., GraphProgram]]:
    programs: list[GraphProgram] = []
    registry = ProfileRegistry()

    def make(mode: Mode, name: str = "two_gemm_drop", client_is_vmm: bool = True) -> GraphProgram:
        options = ProgramOptions(mode, registry, Guarded(), lambda *where: xla.device, client_is_vmm)
        programs.append(GraphProgram(name, recorded(name), options, {}))
        return programs[-1]

    yield make
    for program in programs:
        program.release()


def test_skip_profiled_profiles_decides_and_remaps_on_xlas_buffers(
    xla: Xla, load: Callable[..., GraphProgram]
) -> None:
    program = load(Mode.SKIP_PROFILED)
    arguments = [xla.allocate() for _ in range(3)]
    fallbacks = [xla.call(program, arguments).count("thunk_fallback") for _ in range(3)]
    assert all(fallbacks)
    kinds = xla.call(program, arguments)
    assert {"transition_active", "reserve", "execute_remapped", "record_create"} <= set(kinds)
    for _ in range(5):
        assert xla.call(program, arguments) == ["execute_command_buffer", "execute_remapped"]
    assert program.events.counts["reserve"] == 1
    assert program.events.counts["demote"] == 0
    assert program.runs == 9
    assert program.remapping_reason == ""
    (snapshot,) = program.snapshots()
    assert snapshot.phase == "active"


def test_a_client_of_another_allocator_is_not_remapped_though_its_buffers_look_as_if(
    xla: Xla, load: Callable[..., GraphProgram]
) -> None:
    program = load(Mode.SKIP_PROFILED, client_is_vmm=False)
    arguments = [xla.allocate() for _ in range(3)]
    for _ in range(5):
        xla.call(program, arguments)
    counts = program.events.counts
    assert counts["reserve"] == counts["profile_step"] == counts["execute_remapped"] == 0
    assert counts["execute_command_buffer"] == 5
    assert program.remapping_reason == NOT_VMM


def test_an_argument_may_move_and_its_old_memory_go(xla: Xla, load: Callable[..., GraphProgram]) -> None:
    program = load(Mode.SKIP_PROFILED)
    arguments = [xla.allocate() for _ in range(3)]
    for _ in range(5):
        xla.call(program, arguments)
    for _ in range(2):
        xla.free(arguments[0])
        xla.allocator.synchronize_pending_operations(0)
        arguments[0] = xla.allocate()
        assert xla.call(program, arguments) == ["execute_command_buffer", "execute_remapped"]
    assert program.events.counts["demote"] == 0


def test_one_buffer_for_two_selected_arguments_is_run_all_the_same(
    xla: Xla, load: Callable[..., GraphProgram]
) -> None:
    program = load(Mode.SKIP_PROFILED)
    arguments = [xla.allocate() for _ in range(3)]
    for _ in range(5):
        xla.call(program, arguments)
    xla.call(program, [arguments[0], arguments[0], arguments[2]])
    assert program.events.counts["demote"] == 1


@pytest.mark.parametrize("mode", [Mode.ALWAYS_UPDATE, Mode.SKIP_TEMP])
def test_what_moves_is_updated(xla: Xla, load: Callable[..., GraphProgram], mode: Mode) -> None:
    program = load(mode)
    arguments = [xla.allocate() for _ in range(3)]
    for _ in range(3):
        kinds = xla.call(program, arguments)
    assert "update_begin" not in kinds
    kept = [xla.allocate() for _ in range(2)]
    for turn in (1, 0, 1, 0):
        kinds = xla.call(program, arguments, [kept[turn % 2]])
        assert "update_done" in kinds
    assert program.events.counts["thunk_fallback"] == 0


@pytest.mark.parametrize("mode", [Mode.ALWAYS_UPDATE, Mode.SKIP_TEMP, Mode.SKIP_PROFILED])
def test_buffers_of_a_pool_are_used_where_they_are(
    xla: Xla, load: Callable[..., GraphProgram], mode: Mode
) -> None:
    program = load(mode)
    pool = xla.device.executor.allocate_foreign(8 << 20)
    arguments = [pool.slice(number * BYTES, BYTES) for number in range(4)]
    for _ in range(5):
        xla.call(program, arguments[:3], [arguments[3]])
    counts = program.events.counts
    assert counts["reserve"] == counts["profile_step"] == 0
    assert counts["execute_command_buffer"] > 0
    assert program.remapping_reason == NOT_VMM
    program.release()
    xla.device.executor.free_foreign(pool)


def test_a_donated_argument_is_written_in_place(xla: Xla, load: Callable[..., GraphProgram]) -> None:
    program = load(Mode.SKIP_PROFILED, "feedback_donate")
    state = xla.allocate()
    others = [xla.allocate() for _ in program.executable.parameter_allocations[1:]]
    positions = program.executable.parameter_allocations
    (result,) = program.executable.result_allocations
    arguments = [*others]
    arguments.insert(positions.index(result), state)
    for _ in range(6):
        xla.call(program, arguments, [state])
    assert program.events.counts["transition_active"] == 1


@pytest.mark.parametrize("call", ["cuMemMap", "cuMemCreate", "cuMemAddressReserve"])
def test_after_a_refusal_of_the_driver_the_next_run_works(
    xla: Xla, load: Callable[..., GraphProgram], call: str
) -> None:
    program = load(Mode.SKIP_TEMP)
    arguments, results = [xla.allocate() for _ in range(3)], [xla.allocate()]
    xla.device.executor.driver.fail(call)
    with suppress(StatusError):
        xla.call(program, arguments, results)
    xla.call(program, arguments, results)
    assert program.runs >= 1


def test_what_is_released_is_taken_anew(xla: Xla, load: Callable[..., GraphProgram]) -> None:
    program = load(Mode.SKIP_PROFILED)
    arguments = [xla.allocate() for _ in range(3)]
    used = xla.device.executor.memory.used_bytes
    for _ in range(2):
        for _ in range(5):
            xla.call(program, arguments)
        program.release()
        xla.allocator.synchronize_pending_operations(0)
        assert xla.device.executor.memory.used_bytes <= used
    assert program.events.counts["transition_active"] == 2
