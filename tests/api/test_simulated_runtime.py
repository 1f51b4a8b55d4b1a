"""The GPU's side of a loop that runs on the CPU: profiles, lifetimes, failures, threads, nothing left."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api import gpu_plan
from jax_cmdbuf.api.decorator import command_buffer
from jax_cmdbuf.api.observation import reset_simulation, simulation
from jax_cmdbuf.api.simulated_gpu import SimulatedGpu
from jax_cmdbuf.errors import CompileError, StatusCode, StatusError
from tests.api.interrupts import interrupted_at, lines_of
from tests.api.simulated_programs import RECORDED, feedback, kinds, matrix, program_of, two_gemm


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    reset_simulation()
    yield
    reset_simulation()


def states(program):
    snapshot = program.executions[0][-1].snapshot
    return {each.path: (each.state, each.reason) for each in snapshot.allocations if each.path}


def test_a_loop_goes_through_profile_and_transition():
    step, a, b, c = two_gemm(), matrix(1), matrix(2), matrix(3)
    for _ in range(6):
        result = step(a, b, c)
        np.testing.assert_array_equal(result, jax.jit(lambda a, b, c: (a @ b) @ c)(a, b, c))
    program = program_of(step)
    assert program.count == 6
    found = kinds(program)
    assert all(events[-1] == "profile_step" for events in found[:3])
    assert "transition_active" in found[3]
    assert all("execute_command_buffer" in events for events in found[3:])
    assert {states(program)[path][0] for path in "abc"} == {"remapped"}
    (snapshot,) = simulation().runtime.snapshots()
    assert (snapshot.phase, snapshot.executions, snapshot.device) == ("active", 6, 0)


def test_an_argument_made_anew_moves_and_a_host_array_is_uploaded_at_every_call():
    step, a, b = two_gemm(), matrix(1), matrix(2)
    kept = []
    for turn in range(5):
        kept.append(matrix(turn))
        step(a, b, kept[-1])
    state, reason = states(program_of(step))["c"]
    assert (state, "moved" in reason or "chang" in reason) == ("rejected", True)


def test_a_donated_argument_hands_its_buffer_to_the_result():
    step, weights, h = feedback(), [matrix(n) for n in range(8)], matrix(9)
    for _ in range(6):
        h = step(weights, h)
    assert states(program_of(step))["h"][0] == "remapped"
    assert not h.is_deleted()


def test_everything_is_given_back_when_the_arrays_go():
    step, a, b, c = two_gemm(), matrix(1), matrix(2), matrix(3)
    for _ in range(5):
        step(a, b, c)
    runtime = simulation().runtime
    executor = runtime._devices[0].device.executor
    assert not executor.memory.is_empty
    reset_simulation()
    assert executor.memory.is_empty


def test_deleted_and_collected_arrays_free_their_buffers():
    step, b, c = two_gemm(), matrix(2), matrix(3)
    arrays = simulation().runtime._arrays
    for turn in range(20):
        a = matrix(turn)
        step(a, b, c)
        if turn % 2:
            a.delete()
        del a
    gc.collect()
    step(b, b, c)
    assert len(arrays) <= len(jax.live_arrays())


def test_each_device_has_a_profile_of_its_own(run_python):
    done = run_python(
        """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from jax_cmdbuf.api.observation import simulation
from tests.api.simulated_programs import two_gemm, matrix, program_of
mesh = jax.make_mesh((4,), ("d",))
step = two_gemm()
args = [jax.device_put(matrix(n), NamedSharding(mesh, P())) for n in range(3)]
for _ in range(5):
    out = step(*args)
assert out.sharding.device_set == args[0].sharding.device_set
snapshots = simulation().runtime.snapshots()
print(sorted((each.device, each.phase, each.executions) for each in snapshots))
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )
    assert done.stdout.strip() == str([(n, "active", 5) for n in range(4)]), done.stderr


def test_each_signature_has_a_profile_of_its_own():
    first, second = two_gemm(), two_gemm()
    for function in (first, second, first, second, first):
        function(matrix(), matrix(), matrix())
    counted = [[each.snapshot.executions for each in program_of(f).executions[0]] for f in (first, second)]
    assert counted == [[1, 2, 3], [1, 2]]


def test_results_are_named_by_their_place_in_the_tree():
    plan = RECORDED / "multi_out" / "executable.bin.gz"

    def function(a, b):
        return {"one": a @ b, "two": (jnp.tanh(a), jnp.sum(a @ b))}

    step = command_buffer(function, update_mode="SKIP_PROFILED", runtime="simulated", plan=plan)
    step(matrix(), matrix(2))
    paths = program_of(step).loaded.program.paths
    assert {paths[0], paths[1], paths[4]} == {"result['one']", "result['two'][0]", "result['two'][1]"}
    assert {paths[2], paths[3]} == {"a", "b"}


def test_what_cannot_be_planned_runs_and_says_so_once(caplog):
    step = two_gemm(plan=b"no executable")
    with caplog.at_level(logging.WARNING, "jax_cmdbuf"):
        for _ in range(3):
            result = step(matrix(), matrix(), matrix())
    np.testing.assert_allclose(result, (matrix() @ matrix()) @ matrix(), rtol=1e-5)
    (record,) = caplog.records
    assert "multiply runs, but is not simulated: the given bytes" in record.getMessage()
    assert simulation().runtime.programs == ()


def test_what_calls_back_into_python_runs_and_says_so(caplog):
    seen = []

    @command_buffer(runtime="simulated")
    def step(x):
        jax.debug.callback(seen.append, x)
        return x + 1

    with caplog.at_level(logging.WARNING, "jax_cmdbuf"):
        assert step(jnp.float32(1)) == 2
        jax.effects_barrier()
    assert seen == [1]
    assert "step runs, but is not simulated" in caplog.text


def test_an_error_in_the_call_reaches_the_user_and_the_loop_goes_on():
    step, a, b, c = two_gemm(), matrix(1), matrix(2), matrix(3)
    step(a, b, c)
    with pytest.raises(TypeError):
        step(a, b)
    with pytest.raises(TypeError, match=r"dot_general|incompatible|shapes"):
        step(a, b, jnp.ones(3))
    for _ in range(4):
        step(a, b, c)
    assert program_of(step).count == 5


def test_foreign_memory_is_not_remapped():
    step, a, b, c = two_gemm(), matrix(1), matrix(2), matrix(3)
    simulation().runtime.declare_foreign(a)
    for _ in range(5):
        step(a, b, c)
    assert "not_vmm_backed" in kinds(program_of(step))[3]
    del a
    gc.collect()
    step(b, b, c)


def test_a_hundred_threads_lose_nothing():
    steps, args = [two_gemm() for _ in range(4)], [matrix(n) for n in range(3)]
    barrier = threading.Barrier(100)

    def work(number: int) -> float:
        barrier.wait()
        mine = matrix(number)
        return float(steps[number % 4](mine, *args[:2])[0, 0])

    with ThreadPoolExecutor(100) as pool:
        results = list(pool.map(work, range(100)))
    expected = [float(((matrix(n) @ args[0]) @ args[1])[0, 0]) for n in range(100)]
    np.testing.assert_allclose(results, expected, rtol=1e-5)
    assert sum(program_of(step).count for step in steps) == 100
    executor = simulation().runtime._devices[0].device.executor
    reset_simulation()
    assert executor.memory.is_empty


def test_functions_may_go_while_their_calls_are_in_flight():
    args = [matrix(n) for n in range(3)]

    def work(number: int) -> float:
        step = two_gemm()
        result = step(*args)
        del step
        gc.collect()
        return float(result[0, 0])

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(work, range(24)))) == 1
    assert len(simulation().runtime.programs) == 24


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_what_the_function_raises_reaches_the_user_and_leaves_no_lock_behind(error):
    args, raises = [matrix(n) for n in range(3)], [error]

    def rude(a, b, c):
        if raises:
            raise raises.pop()
        return (a @ b) @ c

    step = command_buffer(rude, runtime="simulated", plan=two_gemm().observed.plan)
    with pytest.raises(error):
        step(*args)
    raises.clear()
    for _ in range(3):
        step(*args)
    assert program_of(step).count == 3


class Loop:
    """Eight layers on a donated matrix, over and over."""

    def __init__(self):
        reset_simulation()
        self.step, self.weights, self.h = feedback(), [matrix(n) for n in range(8)], matrix(9)

    def turn(self):
        if self.h.is_deleted():  # the interrupted call took it and nobody got its result
            self.h = matrix(9)
        self.h = self.step(self.weights, self.h)

    def end(self):
        """Goes on for a while; what was wrong, and what is in use then and after the end."""
        for _ in range(3):
            self.turn()
        device = simulation().runtime._devices[0]
        executions = program_of(self.step).executions[0]
        errors = [event for each in executions for event in each.events if event.kind == "error"]
        active = device.allocator.statistics(0).active
        reset_simulation()
        return errors, active, device.device.executor.memory.is_empty


@pytest.mark.parametrize(("before", "samples"), [(5, 30), (0, 20)])
def test_wherever_a_call_is_interrupted_nothing_leaks_and_the_loop_goes_on(before, samples):
    def looped():
        loop = Loop()
        for _ in range(before):
            loop.turn()
        return loop

    undisturbed, counted = looped().end(), lines_of(looped().turn)
    assert (undisturbed[0], undisturbed[2]) == ([], True)
    for line in sorted({1 + counted * sample // samples for sample in range(samples)}):
        loop = looped()
        interrupted_at(line, loop.turn)
        assert loop.end() == undisturbed, f"interrupted at line {line} of {counted}"


def test_a_finalizer_may_call_a_decorated_function_in_the_middle_of_an_execution(monkeypatch):
    step, args = two_gemm(), [matrix(n) for n in range(3)]
    step(*args)
    execute, calls = SimulatedGpu.options, []

    class Last:
        def __del__(self):
            calls.append(step(*args))

    def collected(gpu, guard):
        if not calls:
            Last()
        return execute(gpu, guard)

    monkeypatch.setattr(SimulatedGpu, "options", collected)
    step(*args)
    assert len(calls) == 1
    assert program_of(step).count == 3


def test_when_the_simulated_memory_is_exhausted_the_function_goes_on(monkeypatch):
    step, args = feedback(), ([matrix(n) for n in range(8)], matrix(9))
    step(*args)

    def refuse(gpu, size):
        raise StatusError(StatusCode.RESOURCE_EXHAUSTED, "no memory")

    with monkeypatch.context() as patched:
        patched.setattr(SimulatedGpu, "allocate", refuse)
        np.testing.assert_array_equal(step(args[0], matrix(9)), step(args[0], matrix(9)))
    assert kinds(program_of(step))[1:] == [["error"], ["error"]]
    step(args[0], matrix(9))
    assert kinds(program_of(step))[3][-1] == "profile_step"
    executor = simulation().runtime._devices[0].device.executor
    reset_simulation()
    assert executor.memory.is_empty


def test_a_call_that_ends_after_everything_was_forgotten_is_left_alone():
    args, runtime = [matrix(n) for n in range(3)], simulation().runtime

    def forgetting(a, b, c):
        return (a @ b) @ c

    step = command_buffer(forgetting, runtime="simulated", plan=two_gemm().observed.plan)
    step(*args)
    program = program_of(step)
    pending = simulation().begin(step, tuple(args), {})
    reset_simulation()
    pending.returned(step.jitted(*args))
    assert (program.count, runtime._devices) == (1, {})


def test_one_program_is_compiled_once_and_the_wait_is_logged(monkeypatch, caplog):
    """However often it is decorated and by however many threads: what fails is kept just the same."""
    asked = []

    def compile_nothing(request):
        asked.append(request.source.text)
        raise CompileError("no compiler in this test")

    monkeypatch.setattr(gpu_plan, "compile_for_target", compile_nothing)
    args = [matrix(n) for n in range(3)]
    with caplog.at_level(logging.INFO, "jax_cmdbuf"), ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: two_gemm(plan=None)(*args), range(16)))
        two_gemm(plan=None)(*(x[:64, :64] for x in args))
        two_gemm(plan=None, target="h100")(*args)
    assert len(asked) == 3
    texts = [record.getMessage() for record in caplog.records]
    assert texts.count("compiling multiply for h200") == 2
    assert texts.count("compiling multiply for h100") == 1
    assert texts.count("multiply runs, but is not simulated: no compiler in this test") == 1
