"""Custom calls around recorded programs on a CPU: who gets what; the simulated device computes nothing."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_cmdbuf.api.cuda_graph_runtime import CudaGraphRuntime, set_cuda_graph_runtime
from jax_cmdbuf.api.decorator import CommandBufferFunction, command_buffer
from jax_cmdbuf.api.graph_program import NOT_VMM, GraphProgram
from jax_cmdbuf.api.graph_signatures import PROGRAMS
from jax_cmdbuf.api.session import SimulatedDevice
from tests.api.graph_programs import CLIENT, graph_runtime, host_device, matrix


@pytest.fixture(autouse=True)
def forget_runtime() -> Iterator[None]:
    yield
    set_cuda_graph_runtime(None)


def products(a: Any, b: Any, c: Any) -> Any:
    return (a @ b) @ c


def decorate(
    runtime: CudaGraphRuntime, function: Any = products, **options: Any
) -> CommandBufferFunction[..., Any]:
    set_cuda_graph_runtime(runtime)
    decorated: CommandBufferFunction[..., Any] = command_buffer(function, runtime="cuda_graph", **options)
    return decorated


def test_a_call_is_one_custom_call_on_xlas_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    run = GraphProgram.run

    def noted(self: Any, ordinal: int, stream: int, arguments: Any, results: Any) -> None:
        seen.append((ordinal, arguments, results))
        run(self, ordinal, stream, arguments, results)

    monkeypatch.setattr(GraphProgram, "run", noted)
    runtime = graph_runtime("two_gemm_drop")
    function = decorate(runtime, update_mode="SKIP_PROFILED")
    arrays = [matrix(seed) for seed in range(3)]
    result = jax.block_until_ready(function(*arrays))
    assert (result.shape, result.dtype) == ((128, 128), jnp.float32)
    addresses = [each.unsafe_buffer_pointer() for each in arrays]
    assert seen == [(0, addresses, [result.unsafe_buffer_pointer()])]
    for _ in range(4):
        function(*arrays).block_until_ready()
    (report,) = runtime.reports()
    assert (report.function, report.runs, report.native_reason) == ("products", 5, "")
    assert report.remapping_reason == NOT_VMM
    assert "reserve" not in report.events
    assert function.update_mode_status.effective == "ALWAYS_UPDATE"
    assert function.update_mode_status.runtime == "cuda_graph"
    runtime.close()


def test_a_donated_argument_is_given_away_and_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(GraphProgram, "run", lambda self, *args: seen.append(args))

    def mlp(weights: Any, h: Any) -> Any:
        for weight in weights:
            h = jnp.tanh(h @ weight)
        return h

    function = decorate(graph_runtime("feedback_donate"), mlp, donate_argnums=1)
    weights, state = [matrix(seed) for seed in range(8)], matrix(9)
    for _ in range(3):
        given = state.unsafe_buffer_pointer()
        result = jax.block_until_ready(function(weights, state))
        assert state.is_deleted()
        assert result.unsafe_buffer_pointer() == given
        _, _, arguments, results = seen[-1]
        assert arguments[-1] == results[0] == given
        state = result


def test_inside_other_traces_the_function_is_what_jax_jitted() -> None:
    runtime = graph_runtime("two_gemm_drop")
    function = decorate(runtime)
    a, b, c = (matrix(seed) for seed in range(3))
    assert jnp.allclose(jax.jit(lambda a: function(a, b, c) + 1)(a), products(a, b, c) + 1)
    expected = jax.grad(lambda a: products(a, b, c).sum())(a)
    assert jnp.allclose(jax.grad(lambda a: function(a, b, c).sum())(a), expected)
    assert jax.vmap(function, (0, None, None))(jnp.stack([a, b]), b, c).shape == (2, 128, 128)
    with jax.disable_jit():
        assert jnp.allclose(function(a, b, c), products(a, b, c), atol=1e-4)
    assert runtime.reports() == ()


def test_what_only_xla_can_run_is_run_by_xla_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    runtime = graph_runtime("sort_fft")
    function = decorate(runtime)
    a, b, c = (matrix(seed) for seed in range(3))
    with caplog.at_level(logging.WARNING, "jax_cmdbuf"):
        for _ in range(3):
            assert (function(a, b, c) == jax.jit(products)(a, b, c)).all()
    (record,) = caplog.records
    assert "products runs on XLA's own command buffers: only XLA can run kFft" in record.getMessage()
    (report,) = runtime.reports()
    assert "only XLA can run kFft" in report.native_reason
    assert "only XLA can run kFft" in function.update_mode_status.reason


@pytest.mark.parametrize("name", ["two_gemm_drop", "sort_fft"])
def test_compiler_options_and_static_arguments_stay_the_functions(name: str) -> None:
    def function(a: Any, b: Any, c: Any, *, twice: bool) -> Any:
        return products(a, b, c) * (2 if twice else 1)

    runtime = graph_runtime(name)
    options = {"xla_cpu_enable_fast_math": False}
    decorated = decorate(runtime, function, static_argnames="twice", compiler_options=options)
    a = matrix()
    for twice in (False, True, False):
        assert jax.block_until_ready(decorated(a, a, a, twice=twice)).shape == (128, 128)
    assert sum(report.runs for report in runtime.reports()) == (3 if name == "two_gemm_drop" else 0)


def test_on_another_platform_xla_runs_the_function() -> None:
    runtime = CudaGraphRuntime(client=None)
    function = decorate(runtime)
    a = matrix()
    assert (function(a, a, a) == jax.jit(products)(a, a, a)).all()
    (report,) = runtime.reports()
    assert report.native_reason == "JAX runs on the platform 'cpu', not on CUDA"


def test_a_program_that_xla_does_not_serialize_is_run_by_xla() -> None:
    def unreadable(compiled: Any) -> Any:
        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: no")

    runtime = CudaGraphRuntime(client=CLIENT, read_executable=unreadable, platform="cpu")
    function = decorate(runtime, donate_argnums=0)
    a = matrix()
    expected = jax.jit(products)(a, a, a)
    assert (function(a + 0, a, a) == expected).all()
    assert [report.native_reason for report in runtime.reports()] == ["JaxRuntimeError: UNIMPLEMENTED: no"]


def test_what_the_device_refuses_is_the_calls_error_and_the_next_call_works() -> None:
    device = host_device()
    function = decorate(graph_runtime("two_gemm_drop", device))
    a = matrix()
    device.executor.driver.fail("cuMemCreate")
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"in custom call jax_cmdbuf.cuda_graph: .*cuMemCreate"
    ):
        jax.block_until_ready(function(a, a, a))
    jax.block_until_ready(function(a, a, a))


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    device = host_device()
    yield device
    assert device.executor.memory.is_empty


def test_a_function_that_dies_leaves_nothing_behind(device: SimulatedDevice) -> None:
    runtime = graph_runtime("two_gemm_drop", device)
    a = matrix()
    programs = len(PROGRAMS)
    for _ in range(5):
        function = decorate(runtime, lambda a, b, c: products(a, b, c))
        jax.block_until_ready(function(a, a, a))
        del function
        gc.collect()
    runtime.collect()
    assert len(PROGRAMS) == programs
    assert runtime.reports() == ()
    assert device.executor.memory.is_empty


def test_closing_gives_everything_back_until_the_next_call(device: SimulatedDevice) -> None:
    runtime = graph_runtime("two_gemm_drop", device)
    function = decorate(runtime)
    a = matrix()
    for _ in range(2):
        jax.block_until_ready(function(a, a, a))
        assert not device.executor.memory.is_empty
        runtime.close()
        assert device.executor.memory.is_empty
