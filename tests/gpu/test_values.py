"""The whole runtime on a CUDA device: XLA's kernels, our command buffers and addresses, XLA's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.events import EventLog
from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import DeviceDescription, Executable
from jax_cmdbuf.executable.recordable import unsupported_thunks
from jax_cmdbuf.runtime.execution_scope import RunOptions
from jax_cmdbuf.runtime.gpu_executable import GpuExecutable
from jax_cmdbuf.runtime.registry import ProfileRegistry
from jax_cmdbuf.stream_executor.device_address import DeviceAddress
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig
from xla_flags.options import CommandBufferUpdateMode

pytestmark = pytest.mark.gpu

EXECUTIONS = 20
_LARGE = 1 << 26
MOVES_FROM = 12
MODES = [
    CommandBufferUpdateMode.ALWAYS_UPDATE,
    CommandBufferUpdateMode.SKIP_TEMP,
    CommandBufferUpdateMode.SKIP_PROFILED,
]
# Small programs must become command buffers too; what a library would run, a kernel does.
OPTIONS = {"xla_gpu_graph_min_graph_size": 1, "xla_gpu_experimental_disable_binary_libraries": True}
# jaxlib before 0.12 does not store the device; CUDA 13 decides grouping as any version since 12.9.
DEVICE = DeviceDescription("CUDA", (13, 0, 0), (13, 0, 0), (13, 0, 0))

Shapes = list[tuple[tuple[int, ...], str]]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Shapes]] = {}


def case(*arguments: tuple[tuple[int, ...], str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[function.__name__] = (function, list(arguments))
        return function

    return add


def f32(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "float32"


def of(dtype: str, *shape: int) -> tuple[tuple[int, ...], str]:
    return shape, dtype


@case(f32(128, 128), f32(128, 128), f32(128, 128))
def two_gemm(x, a, b):
    return jnp.tanh(x @ a) @ b


@case(f32(1000))
def one_kernel(x):
    return jnp.sin(x) * 2 + 1


@case(f32())
def scalar(x):
    return x * 3 + 1


@case(f32(7, 13), f32(13))
def odd_shapes(x, y):
    return (x * y).sum(0), (x - y).max(1), x.T


@case(f32(0, 5), f32(5))
def zero_size(x, y):
    return x + y, y * 2


@case(f32(33, 257), f32(257))
def layer_norm(x, scale):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-6) * scale, mean


@case(f32(64, 1000))
def softmax(x):
    return jax.nn.softmax(x)


@case(f32(2, 4, 128, 64), f32(2, 4, 128, 64), f32(2, 4, 128, 64))
def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8
    scores = jnp.where(jnp.tril(jnp.ones((128, 128), bool)), scores, -1e9)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)


@case(of("bfloat16", 128, 128), of("bfloat16", 128, 128), of("bfloat16", 128, 512))
def bf16_mlp(x, a, b):
    return jax.nn.gelu(x @ a) @ b


@case(of("bfloat16", 256, 300))
def bf16_reduce(x):
    return x.sum(1), jnp.exp(x)


@case(of("float16", 64, 128), of("float16", 128, 64))
def f16_gemm(a, b):
    return a @ b


@case(of("int8", 128, 256), of("int8", 256, 64))
def int8_gemm(a, b):
    return jnp.matmul(a, b, preferred_element_type=jnp.int32)


@case(of("int32", 129, 65))
def integers(x):
    return jnp.bitwise_xor(x, x >> 3).astype(jnp.int8), jnp.cumsum(x, axis=0)


@case(of("uint8", 513))
def bytes_moved(x):
    return x[::-1] + 3, jnp.roll(x, 5)


@case(f32(100, 50), of("int32", 40))
def gather(table, rows):
    return table[jnp.abs(rows) % 100]


@case(f32(100, 50), of("int32", 40), f32(40, 50))
def scatter_set(table, rows, values):
    return table.at[jnp.arange(40) * 2].set(values), rows + 1


@case(f32(64, 128), f32(128, 96), f32(96, 8))
def train_step(x, w1, w2):
    def loss(w1, w2):
        return ((jnp.maximum(x @ w1, 0) @ w2) ** 2).mean()

    value, (g1, g2) = jax.value_and_grad(loss, argnums=(0, 1))(w1, w2)
    return w1 - 0.1 * g1, w2 - 0.1 * g2, value


@case(f32(37, 41))
def with_constant(x):
    return x * jnp.asarray(np.arange(37 * 41, dtype=np.float32).reshape(37, 41)) + x.sum()


@case(f32(16, 8, 4))
def transposes(x):
    return jnp.transpose(x, (2, 0, 1)) + 0, x.reshape(4, 128).sum(0), jnp.flip(x, 1)


@case(f32(256, 64), f32(64))
def static_unroll(x, w):
    for step in range(6):
        x = jnp.tanh(x * w + step)
    return x


@case(f32(64, 64))
def complex_numbers(x):
    z = jax.lax.complex(x, x.T)
    return (z * z.conj()).real, jnp.abs(z)


@case(of("bool", 300), f32(300))
def predicates(mask, x):
    return jnp.where(mask, x, -x), mask.sum(), ~mask


@case(f32(32, 28, 28, 1))
def pooling(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@case(f32(50, 50))
def one_of_many(x):
    return jnp.argmax(x, -1), jnp.max(x), jnp.isnan(x).any()


@case(f32(8, 1024, 64))
def normalise_and_mix(x):
    y = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    return jnp.einsum("bid,bjd->bij", y[:, :128], y[:, :128]).mean(0), y


@case(of("uint32", 2))
def random_bits(key):
    return jax.random.normal(jax.random.wrap_key_data(key), (1000,))


@case(f32((1 << 29) + 8))
def over_two_gibibytes(x):
    return x * 2 + 1


def draw(draws: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Fresh values of a type: bits for integers, a normal distribution for floats."""
    kind = jnp.dtype(dtype)
    if (count := int(np.prod(shape))) > _LARGE:
        # Fresh, but quick to make: one block of random values over and over.
        return np.resize(draw(draws, (count // 999,), dtype), shape)
    if kind == jnp.bool_:
        return draws.random(shape) < 0.5
    if jnp.issubdtype(kind, jnp.integer):
        info = jnp.iinfo(kind)
        return draws.integers(info.min, info.max, shape, kind, endpoint=True)
    return np.asarray(draws.standard_normal(shape, np.float32)).astype(kind)


@pytest.fixture(scope="module")
def stream() -> Iterator[Any]:
    from jax_cmdbuf.stream_executor.cuda import CudaExecutor
    from jax_cmdbuf.stream_executor.cuda_driver import current_context

    executor = CudaExecutor(0)
    with current_context(executor.context):
        stream = executor.create_stream()
        yield stream
        stream.close()


@cache
def compiled_case(name: str) -> tuple[Any, Executable]:
    function, arguments = FUNCTIONS[name]
    structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arguments]
    # Unused arguments stay, so that buffers and arguments correspond one to one.
    jitted = jax.jit(function, compiler_options=OPTIONS, keep_unused=True)
    compiled = jitted.lower(*structs).compile()
    return compiled, Executable.from_compiled(compiled)


def download(address: DeviceAddress, like: Any) -> np.ndarray:
    from jax_cmdbuf.stream_executor.cuda_driver import call

    host = np.zeros(like.shape, like.dtype)
    if host.nbytes:
        call("cuMemcpyDtoH", host.ctypes.data, address.opaque, host.nbytes)
    return host


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(
        np.frombuffer(actual.tobytes(), np.uint8), np.frombuffer(expected.tobytes(), np.uint8)
    )


def large(name: str) -> bool:
    return any(int(np.prod(shape)) > _LARGE for shape, _ in FUNCTIONS[name][1])


CASES = [(name, mode) for name in FUNCTIONS for mode in MODES if not large(name) or mode is MODES[-1]]


@pytest.mark.parametrize(("name", "mode"), CASES, ids=lambda value: getattr(value, "name", value))
def test_values_are_bit_for_bit_those_of_xla(stream: Any, name: str, mode: CommandBufferUpdateMode) -> None:
    compiled, executable = compiled_case(name)
    assert not unsupported_thunks(executable)
    draws = np.random.default_rng(7)
    registry, log = ProfileRegistry(), EventLog()
    loaded = GpuExecutable(executable, convert(executable, device=DEVICE), mode, registry)
    with DeviceAddressVmmAllocator([DeviceConfig(stream)]) as allocator:
        options = RunOptions(allocator, stream, log)
        arguments = [draw(draws, shape, dtype) for shape, dtype in FUNCTIONS[name][1]]
        buffers = [allocator.allocate(0, value.nbytes) for value in arguments]
        for turn in range(5 if large(name) else EXECUTIONS):
            arguments = [draw(draws, shape, dtype) for shape, dtype in FUNCTIONS[name][1]]
            if turn >= MOVES_FROM:
                # The first input moves in every execution after the transition.
                buffers.append(allocator.allocate(0, arguments[0].nbytes))
                if not buffers[0].is_null:
                    allocator.deallocate(0, buffers[0])
                buffers = [buffers.pop(), *buffers[1:]]
            for address, value in zip(buffers, arguments, strict=True):
                if value.nbytes:
                    stream.executor.write(address, value.tobytes())
            outputs = loaded.execute(options, buffers).outputs
            stream.synchronize()
            for address, expected in zip(outputs, jax.tree.leaves(compiled(*arguments)), strict=True):
                assert_same_bits(download(address, expected), np.asarray(expected))
                if not address.is_null:
                    allocator.deallocate(0, address)
        events = [event.kind for event in log.drain()]
        assert events.count("reserve") <= 1
        if mode is CommandBufferUpdateMode.SKIP_PROFILED:
            assert events.count("profile_step") == (3 if "thunk_fallback" in events else 0)
            assert events.count("transition_active") + events.count("transition_disabled") <= 1
        for address in filter(lambda address: not address.is_null, buffers):
            allocator.deallocate(0, address)
        loaded.close()
        registry.close()
