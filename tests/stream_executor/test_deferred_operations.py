from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_cmdbuf.stream_executor.deferred_operations import (
    XLA_BATCH,
    BatchLimits,
    DeferredOperation,
    DeferredOperations,
)

SMALL, LARGE = (1, False), (2, False)


class Timeline:
    def __init__(self):
        self.written = []
        self.broken = False

    def write(self, seqno):
        if self.broken:
            raise OSError("the write failed")
        self.written.append(seqno)


@pytest.fixture
def timeline():
    return Timeline()


def queue(timeline, entries=64, size=1 << 40):
    return DeferredOperations(timeline.write, BatchLimits(entries, size))


def frees(count, key=SMALL, size=1):
    return [DeferredOperation(size, key) for _ in range(count)]


class TestOrder:
    def test_operations_come_in_the_order_of_the_calls(self, timeline):
        deferred, operations = queue(timeline), frees(3) + frees(2, LARGE)
        for operation in reversed(operations):
            deferred.defer(operation)
        assert list(deferred) == operations[::-1]

    def test_an_operation_is_pending_exactly_while_it_has_a_number(self, timeline):
        deferred, [operation] = queue(timeline), frees(1)
        assert operation.stale_seqno == 0
        deferred.defer(operation)
        assert operation.stale_seqno == 1
        assert operation in deferred
        deferred.take(operation)
        assert operation.stale_seqno == 0
        assert operation not in deferred

    def test_the_oldest_of_a_key_is_taken_first(self, timeline):
        deferred, small, large = queue(timeline), frees(2), frees(2, LARGE)
        for operation in (large[0], small[0], small[1], large[1]):
            deferred.defer(operation)
        assert deferred.oldest_reusable(SMALL) is small[0]
        taken = [deferred.take_reusable(key) for key in (SMALL, LARGE, SMALL, SMALL, (9, True))]
        assert taken == [small[0], large[0], small[1], None, None]
        assert list(deferred) == [large[1]]

    def test_an_unmap_is_never_reusable(self, timeline):
        deferred = queue(timeline)
        deferred.defer(DeferredOperation(0, None))
        assert deferred.oldest_reusable(SMALL) is None

    def test_what_is_being_released_stays_queued_but_is_not_taken(self, timeline):
        deferred, operations = queue(timeline), frees(2)
        for operation in operations:
            deferred.defer(operation)
        deferred.begin_release(operations[0])
        deferred.begin_release(operations[0])
        assert deferred.take_reusable(SMALL) is operations[1]
        assert list(deferred) == [operations[0]]
        deferred.finish_release(operations[0])
        assert len(deferred) == 0


class TestBatches:
    def test_a_full_batch_is_written_before_the_next_entry(self, timeline):
        deferred = queue(timeline, entries=2)
        for operation in frees(5):
            deferred.defer(operation)
        assert [operation.stale_seqno for operation in deferred] == [1, 1, 2, 2, 3]
        assert timeline.written == [1, 2]

    def test_bytes_fill_a_batch_too(self, timeline):
        deferred = queue(timeline, size=10)
        for size in (6, 4, 1, 11, 9):
            deferred.defer(DeferredOperation(size, SMALL))
        assert [operation.stale_seqno for operation in deferred] == [1, 1, 2, 3, 4]

    def test_unmaps_have_no_bytes(self, timeline):
        deferred = queue(timeline, size=10)
        for size in (0, 99, 0, 1):
            deferred.defer(DeferredOperation(size, SMALL if size else None))
        assert [operation.stale_seqno for operation in deferred] == [1, 1, 1, 2]

    def test_flushing_writes_once(self, timeline):
        deferred = queue(timeline)
        deferred.flush()
        deferred.defer(frees(1)[0])
        deferred.flush()
        deferred.flush()
        assert timeline.written == [1]

    def test_a_batch_that_was_taken_back_is_not_written(self, timeline):
        deferred, [operation] = queue(timeline, entries=2), frees(1)
        for _ in range(100):
            deferred.defer(operation)
            assert deferred.take_reusable(SMALL) is operation
        deferred.flush()
        assert timeline.written == []

    def test_entries_taken_back_make_room(self, timeline):
        deferred, operations = queue(timeline, entries=2), frees(3)
        for operation in operations[:2]:
            deferred.defer(operation)
        deferred.take(operations[0])
        deferred.defer(operations[2])
        assert timeline.written == []

    def test_a_failed_write_changes_nothing(self, timeline):
        deferred, operations = queue(timeline, entries=1), frees(2)
        deferred.defer(operations[0])
        timeline.broken = True
        with pytest.raises(OSError, match="failed"):
            deferred.defer(operations[1])
        assert operations[1].stale_seqno == 0
        assert list(deferred) == [operations[0]]
        timeline.broken = False
        deferred.defer(operations[1])
        assert timeline.written == [1]

    def test_xla_writes_for_64_entries_or_64_mebibytes(self):
        assert (XLA_BATCH.entries, XLA_BATCH.bytes) == (64, 64 * 1024 * 1024)


@given(
    st.lists(st.tuples(st.sampled_from(["defer", "reuse", "take", "release", "flush"]), st.integers(0, 5))),
    st.integers(1, 4),
)
def test_it_behaves_as_a_list_that_is_scanned(steps, entries):
    timeline = Timeline()
    deferred, model = queue(timeline, entries), []
    for verb, number in steps:
        key = (number % 3, False)
        if verb == "defer":
            operation = DeferredOperation(1, key)
            deferred.defer(operation)
            model.append(operation)
        elif verb == "reuse":
            expected = next((operation for operation in model if operation.reuse_key == key), None)
            assert deferred.take_reusable(key) is expected
            if expected:
                model.remove(expected)
        elif model and verb in ("take", "release"):
            operation = model.pop(number % len(model))
            if verb == "take":
                deferred.take(operation)
            else:
                deferred.begin_release(operation)
                deferred.finish_release(operation)
        elif verb == "flush":
            deferred.flush()
        assert list(deferred) == model
        numbers = [operation.stale_seqno for operation in model]
        assert numbers == sorted(numbers)
        assert timeline.written == sorted(set(timeline.written))
    deferred.flush()
    assert {operation.stale_seqno for operation in model} <= set(timeline.written)
