from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_cmdbuf.api.ffi import Buffer
from jax_cmdbuf.api.probe import PROBE_LOG, ProbeLog, ProbeRecord, probe
from jax_cmdbuf.errors import InputError

X = jnp.arange(12.0).reshape(3, 4) / 12
W = jnp.arange(16.0).reshape(4, 4) / 16


@pytest.fixture(autouse=True)
def empty_log() -> Iterator[None]:
    PROBE_LOG.clear()
    yield
    jax.effects_barrier()
    PROBE_LOG.clear()


def records(result: Any = None) -> tuple[ProbeRecord, ...]:
    jax.block_until_ready(result)
    jax.effects_barrier()
    return PROBE_LOG.records()


def shapes(result: Any = None) -> list[tuple[tuple[int, ...], ...]]:
    return [tuple(buffer.shape for buffer in record.buffers) for record in records(result)]


def probed(x: jax.Array, w: jax.Array) -> jax.Array:
    h = jnp.tanh(x @ w)
    probe(h, {"w": w}, label="h")
    return jnp.sum(h**2)


def plain(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def test_a_record_has_addresses_names_and_types() -> None:
    @jax.jit
    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        probe(x, {"w": w, "half": w.astype(jnp.bfloat16)}, label="here")
        return x + 1

    (record,) = records(program(X, W))
    assert record.label == "here"
    assert record.names == ("[0]", "[1]['half']", "[1]['w']")
    assert [(b.dtype, b.shape, b.size) for b in record.buffers] == [
        ("f32", (3, 4), 48),
        ("bf16", (4, 4), 32),
        ("f32", (4, 4), 64),
    ]
    assert record.addresses[0] == X.unsafe_buffer_pointer()
    assert record.addresses[2] == W.unsafe_buffer_pointer()
    assert (record.platform, record.device_ordinal, record.stream) == ("cpu", 0, None)


def test_the_default_label_is_the_place_of_the_call() -> None:
    jax.jit(lambda x: probe(x))(X)
    (record,) = records()
    assert record.label.startswith("test_probe.py:")
    assert int(record.label.split(":")[1]) > 1


def test_nothing_uses_the_probe_and_it_still_runs() -> None:
    program = jax.jit(lambda x: (probe(x * 2), x)[1])
    program(X)
    program(X)
    first, second = records()
    assert first.sequence < second.sequence
    assert shapes() == [((3, 4),)] * 2


TRANSFORMED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda f: f,
    "jit": jax.jit,
    "grad": jax.grad,
    "jit of grad": lambda f: jax.jit(jax.grad(f, argnums=(0, 1))),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "value_and_grad": lambda f: jax.jit(jax.value_and_grad(f)),
    "hessian": lambda f: jax.jit(jax.hessian(f)),
    "checkpoint": lambda f: jax.jit(jax.grad(jax.checkpoint(f))),
    "forward mode": lambda f: jax.jit(lambda *a: jax.jvp(f, a, a)),
    "linearize": lambda f: lambda *a: jax.linearize(f, *a)[1](*a),
    "inner jit": lambda f: jax.jit(lambda *a: jax.jit(f)(*a) * 2),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_values_are_those_without_it(name: str) -> None:
    transform = TRANSFORMED[name]
    with_probe, without = transform(probed)(X, W), transform(plain)(X, W)
    assert shapes(with_probe) == [((3, 4), (4, 4))]
    for ours, theirs in zip(jax.tree.leaves(with_probe), jax.tree.leaves(without), strict=True):
        assert np.array_equal(ours, theirs)


def test_under_vmap_the_batched_buffer_is_seen() -> None:
    batch = jnp.stack([X, X + 1])
    for transform in (jax.vmap, lambda f, axes: jax.jit(jax.vmap(f, axes))):
        result = transform(probed, (0, None))(batch, W)
        assert np.allclose(result, jax.vmap(plain, (0, None))(batch, W))
    assert shapes() == [((2, 3, 4), (1, 4, 4))] * 2
    gradient = jax.vmap(jax.grad(probed), (0, None))(batch, W)
    assert gradient.shape == batch.shape


def test_scan_and_its_gradient() -> None:
    def step(carry: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        probe(carry, label="step")
        return jnp.tanh(carry @ w), None

    def program(x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(step, x, jnp.stack([W, W, W]))[0])

    assert shapes(jax.jit(program)(X)) == [((3, 4),)] * 3
    PROBE_LOG.clear()
    assert shapes(jax.jit(jax.grad(program))(X)) == [((3, 4),)] * 3


def test_while_loop_and_cond() -> None:
    def loop(x: jax.Array, n: jax.Array | int) -> jax.Array:
        def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            probe(state[0], label="body")
            return jnp.tanh(state[0]), state[1] + 1

        return jax.lax.while_loop(lambda state: state[1] < n, body, (x, jnp.int32(0)))[0]

    def branch(p: jax.Array | int, x: jax.Array) -> jax.Array:
        def taken(u: jax.Array) -> jax.Array:
            probe(u, label="taken")
            return jnp.sin(u)

        return jax.lax.cond(p > 0, taken, jnp.cos, x)

    jax.jit(loop)(X, 3)
    assert len(records()) == 3
    PROBE_LOG.clear()
    jax.jit(jax.vmap(loop))(jnp.stack([X, X]), jnp.array([2, 4]))
    assert shapes() == [((2, 3, 4),)] * 4
    PROBE_LOG.clear()
    jax.jit(branch)(1, X)
    jax.jit(branch)(0, X)
    assert len(records()) == 1
    PROBE_LOG.clear()
    result = jax.jit(jax.vmap(branch))(jnp.array([0, 1]), jnp.stack([X, X]))
    assert np.allclose(result, jnp.stack([jnp.cos(X), jnp.sin(X)]))
    assert np.allclose(jax.jit(jax.grad(lambda x: jnp.sum(branch(1, x))))(X), jnp.cos(X))


def test_custom_derivatives_may_contain_one() -> None:
    @jax.custom_jvp
    def double(x: jax.Array) -> jax.Array:
        probe(x, label="inside")
        return x * 2

    double.defjvp(lambda primals, tangents: (double(*primals), 2 * tangents[0]))

    @jax.custom_vjp
    def triple(x: jax.Array) -> jax.Array:
        return x * 3

    def forward(x: jax.Array) -> tuple[jax.Array, None]:
        probe(x, label="forward")
        return x * 3, None

    triple.defvjp(forward, lambda residual, g: (3 * g,))
    assert jax.jit(jax.grad(double))(1.0) == 2
    assert jax.jit(jax.grad(triple))(1.0) == 3
    assert {record.label for record in records()} == {"inside", "forward"}


def test_keys_scalars_and_host_arrays_are_operands() -> None:
    jax.jit(lambda key: probe(key, 3, np.ones(2, np.int8)))(jax.random.key(0))
    assert [[b.dtype for b in record.buffers] for record in records()] == [["u32", "s32", "s8"]]


@pytest.mark.parametrize("call", [lambda: probe(), lambda: probe({}), lambda: probe(X, label=3)])  # type: ignore[arg-type]
def test_misuse_is_told(call: Callable[[], None]) -> None:
    with pytest.raises(InputError, match=r"no array|label is a string"):
        call()


def test_subscribers_get_each_record_and_their_errors_fail_the_execution() -> None:
    seen: list[str] = []

    def refuse_the_second(record: ProbeRecord) -> None:
        seen.append(record.label)
        if len(seen) == 2:
            raise RuntimeError("not this one")

    program = jax.jit(lambda x: (probe(x, label="p"), x + 1)[1])
    with PROBE_LOG.subscribe(refuse_the_second):
        assert np.array_equal(program(X), X + 1)
        with pytest.raises(
            jax.errors.JaxRuntimeError, match=r"jax_cmdbuf\.probe: RuntimeError: not this one"
        ):
            jax.block_until_ready(program(X))
        assert np.array_equal(program(X), X + 1)
    program(X)
    jax.effects_barrier()
    assert seen == ["p"] * 3
    assert len(PROBE_LOG.records("p")) == 4
    assert PROBE_LOG.records("q") == ()


def record(sequence: int) -> ProbeRecord:
    return ProbeRecord(sequence, "", ("[0]",), (Buffer(1, 4, "f32", (1,)),), "cpu", 0, None, None, 0)


def test_the_log_is_bounded_and_says_what_it_dropped() -> None:
    log = ProbeLog(capacity=3)
    for i in range(5):
        log.add(record(i))
    assert [each.sequence for each in log] == [2, 3, 4]
    assert (len(log), log.dropped) == (3, 2)
    log.clear()
    assert (len(log), log.dropped) == (0, 0)


def test_the_log_takes_records_from_many_threads_while_it_is_read() -> None:
    log = ProbeLog()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            assert len(log.records()) <= 2000
            with log.subscribe(lambda record: None):
                pass

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=lambda: [log.add(record(i)) for i in range(200)]) for _ in range(10)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert len(log) == 2000


def test_functions_collected_in_flight_leave_whole_records() -> None:
    import gc

    for i in range(20):
        program = jax.jit(lambda x, i=i: (probe(x, label=f"p{i}"), jnp.tanh(x) + i)[1])
        program(X)
        del program
        gc.collect()
    assert sorted(each.label for each in records()) == sorted(f"p{i}" for i in range(20))


SHARDED = """
import json
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jax_cmdbuf.api.probe import PROBE_LOG, probe

def plain(x, w): return jnp.tanh(x @ w)
def probed(x, w):
    h = jnp.tanh(x @ w)
    probe(h, w, label='"odd" \\n label\\\\')
    return h

rows = {}
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((2, 2), ("i", "j"), axis_types=(kind,) * 2)
    x = jax.device_put(np.arange(32, dtype=np.float32).reshape(8, 4) / 32, NamedSharding(mesh, P("i")))
    w = jax.device_put(np.arange(16, dtype=np.float32).reshape(4, 4) / 16, NamedSharding(mesh, P(None, "j")))
    mapped = lambda f: jax.shard_map(f, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
    whole = jax.device_put(w, NamedSharding(mesh, P()))
    for name, program, arguments in (
        ("automatic", lambda f: jax.jit(f), (x, w)),
        ("grad", lambda f: jax.jit(jax.grad(lambda x, w: jnp.sum(f(x, w)))), (x, w)),
        ("shard_map", lambda f: jax.jit(mapped(f)), (x, whole)),
        ("shard_map grad", lambda f: jax.jit(jax.grad(lambda x, w: jnp.sum(mapped(f)(x, w)))), (x, whole)),
        ("replicated", lambda f: jax.jit(f), (jax.device_put(x, NamedSharding(mesh, P())), whole)),
    ):
        ours, theirs = program(probed)(*arguments), program(plain)(*arguments)
        assert np.array_equal(ours, theirs), name
        assert ours.sharding == theirs.sharding, name
        jax.effects_barrier()
        records = sorted(PROBE_LOG.records(), key=lambda r: r.device_ordinal)
        assert {r.label for r in records} == {'"odd" \\n label\\\\'}
        assert len({r.run_id for r in records}) == 1
        seen = [(r.device_ordinal, [b.shape for b in r.buffers]) for r in records]
        rows.setdefault(name, []).append(seen)
        PROBE_LOG.clear()
pmapped = jax.pmap(lambda x: (probe(x), x + 1)[1])(jnp.ones((4, 2)))
jax.effects_barrier()
records = sorted(PROBE_LOG, key=lambda r: r.device_ordinal)
rows["pmap"] = [[(r.device_ordinal, [b.shape for b in r.buffers]) for r in records]]
print(json.dumps(rows))
"""


def test_every_device_records_its_own_shards(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_python(SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    expected = {
        "automatic": [[4, 2], [4, 2]],
        "grad": [[4, 2], [4, 2]],
        "shard_map": [[4, 4], [4, 4]],
        "shard_map grad": [[4, 4], [4, 4]],
        "replicated": [[8, 4], [4, 4]],
        "pmap": [[2]],
    }
    assert rows.keys() == expected.keys()
    for name, runs in rows.items():
        for run in runs:
            assert run == [[device, expected[name]] for device in range(4)], name


def test_no_flag_is_read_and_no_backend_started_by_registering(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = """
import os
import jax
from jax_cmdbuf.api.probe import register_probe
register_probe()
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
print(jax.device_count())
"""
    assert run_python(code).stdout == "3\n"
