"""``probe``: where XLA really has a program's buffers, seen from inside the execution.

A call of ``probe`` inside a jitted function becomes a custom call with a side effect and no result; its
handler reads the operands' addresses and writes a :class:`ProbeRecord` to the process's log. Invariants: the
program's values do not depend on a probe; a record is immutable and complete; the log never grows past its
capacity and counts what it had to drop.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jax_cmdbuf import _jax
from jax_cmdbuf.api.ffi import Buffer, CallFrame, FfiHandler
from jax_cmdbuf.errors import InputError

__all__ = ["PROBE_LOG", "PROBE_TARGET", "ProbeLog", "ProbeRecord", "Subscription", "probe", "register_probe"]

PROBE_TARGET = "jax_cmdbuf.probe"
DEFAULT_CAPACITY = 1 << 16
_PLATFORMS = ("cpu", "CUDA")


class ProbeRecord(NamedTuple):
    """What one execution of one probe saw.

    Attributes:
      sequence: counts all records of the process, from 0, in the order in which they were taken.
      label: which probe.
      names: path of each operand in the probe's arguments ("[0]", "[1]['w']").
      buffers: the operands as XLA passed them, in the same order; addresses are device addresses.
      platform: "cpu" or "CUDA".
      device_ordinal: the local device that executed.
      run_id: shared by the executions of one launch on several devices; None where XLA gives none.
      stream: the stream's handle (``CUstream``); None on a CPU.
      thread: identifier of the thread that executed.
    """

    sequence: int
    label: str
    names: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    platform: str
    device_ordinal: int
    run_id: int | None
    stream: int | None
    thread: int

    @property
    def addresses(self) -> tuple[int, ...]:
        """The operands' addresses."""
        return tuple(buffer.address for buffer in self.buffers)


class Subscription:
    """A subscriber's hold on a log; ``close`` it or use it in a ``with`` block."""

    def __init__(self, log: ProbeLog, subscriber: Callable[[ProbeRecord], object]) -> None:
        self._log = log
        self._subscriber = subscriber

    def close(self) -> None:
        """No record that is taken from now on reaches the subscriber."""
        self._log._unsubscribe(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class ProbeLog:
    """The last records, oldest first; safe to use from any thread.

    Attributes:
      capacity: how many records are kept.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._records: deque[ProbeRecord] = deque(maxlen=capacity)
        self._taken = 0
        self._subscriptions: tuple[Subscription, ...] = ()

    def add(self, record: ProbeRecord) -> None:
        """Keeps a record and passes it to the subscribers, in the calling thread.

        What a subscriber raises is raised here; inside an execution it becomes that execution's error.
        """
        with self._lock:
            self._records.append(record)
            self._taken += 1
            subscriptions = self._subscriptions
        for subscription in subscriptions:
            subscription._subscriber(record)

    def records(self, label: str | None = None) -> tuple[ProbeRecord, ...]:
        """The records that are kept: all, or those of one label.

        Executions run asynchronously: call ``jax.block_until_ready`` on a result, or
        ``jax.effects_barrier()``, before reading what they recorded.
        """
        with self._lock:
            records = tuple(self._records)
        return records if label is None else tuple(record for record in records if record.label == label)

    def clear(self) -> None:
        """Forgets the records."""
        with self._lock:
            self._records.clear()
            self._taken = 0

    @property
    def dropped(self) -> int:
        """Records since the last ``clear`` that had to make room for newer ones."""
        with self._lock:
            return self._taken - len(self._records)

    def subscribe(self, subscriber: Callable[[ProbeRecord], object]) -> Subscription:
        """Calls ``subscriber`` with every record from now on, in XLA's executing thread: be quick."""
        subscription = Subscription(self, subscriber)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

    def __iter__(self) -> Iterator[ProbeRecord]:
        return iter(self.records())

    def __len__(self) -> int:
        return len(self._records)


# One for the process, because XLA's table of custom calls is one for the process.
PROBE_LOG = ProbeLog()
_SEQUENCE = itertools.count()


def probe(*arrays: Any, label: str | None = None) -> None:
    """Records where an execution has these arrays, each time the surrounding program gets here.

    Works in and outside of ``jit``, under ``grad``, ``vmap`` (the record has the batched buffer), ``scan``,
    ``while_loop``, ``cond``, ``checkpoint`` and ``shard_map``. It changes no value and is never optimised
    away. XLA does not trace it into a command buffer: a GPU program is cut there.

    On several devices, with or without ``shard_map``, every device records its own shards.

    Args:
      *arrays: arrays, or pytrees of them.
      label: names the records; None: file and line of the call.

    Raises:
      InputError: no array was given, or the label is no string.
      MissingDependencyError: the installed jaxlib's FFI cannot be spoken.
    """
    if label is None:
        frame = sys._getframe(1)
        label = f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
    elif not isinstance(label, str):
        raise InputError(f"a probe's label is a string, not {label!r}")
    leaves = [
        (jax.tree_util.keystr(path), _operand(leaf))
        for path, leaf in jax.tree_util.tree_flatten_with_path(arrays)[0]
        if not _is_float0(leaf)
    ]
    if not leaves:
        raise InputError("probe() was given no array; pass the arrays whose addresses you want to see")
    register_probe()
    names, operands = zip(*leaves, strict=True)
    # Batched and unbatched operands stay what they are, but for an axis of size 1, which costs no copy.
    call = jax.ffi.ffi_call(PROBE_TARGET, (), has_side_effect=True, vmap_method="expand_dims")
    call(*operands, label=label, names="\n".join(names))


def _operand(leaf: Any) -> jax.Array:
    """The leaf as an array that no derivative passes through."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return jax.lax.stop_gradient(jnp.asarray(leaf))


def _is_float0(leaf: Any) -> bool:
    return getattr(leaf, "dtype", None) == jax.dtypes.float0


@functools.cache
def register_probe() -> None:
    """Makes the probe's custom call known to XLA on every platform; touches no device."""
    _jax.allow_ffi_effect_everywhere()
    _jax.register_shardwise_target(PROBE_TARGET, ("label", "names"))
    for platform in _PLATFORMS:
        FfiHandler(PROBE_TARGET, functools.partial(_record, platform), platform).register()


def _record(platform: str, frame: CallFrame) -> None:
    names = frame.attribute("names")
    PROBE_LOG.add(
        ProbeRecord(
            sequence=next(_SEQUENCE),
            label=frame.attribute("label"),
            names=tuple(names.split("\n")),
            buffers=frame.arguments,
            platform=platform,
            device_ordinal=frame.device_ordinal,
            run_id=frame.run_id,
            stream=frame.stream if platform != "cpu" else None,
            thread=threading.get_ident(),
        )
    )
