from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jax_cmdbuf.errors import InputError
from jax_cmdbuf.stream_executor.prediction import (
    AllocationStep,
    History,
    ReusePredictor,
    StepKind,
    predict_addresses,
    steps_of_recording,
    steps_of_trace,
)
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor
from jax_cmdbuf.stream_executor.vmm_allocator import DeviceAddressVmmAllocator, DeviceConfig

DATA = Path(__file__).parents[1] / "data" / "stream_executor"
REUSED = [("ALWAYS_UPDATE", 2064), ("SKIP_TEMP", 1624), ("SKIP_PROFILED", 1698)]
REUSED_IN_TRACES = [("ALWAYS_UPDATE", 321), ("SKIP_TEMP", 533), ("SKIP_PROFILED", 615)]
A, B, C, D = (index << 21 for index in range(1, 5))
SYNCHRONIZE = AllocationStep(StepKind.SYNCHRONIZE)


def lines_of(name):
    with gzip.open(DATA / name, "rt") as file:
        return [json.loads(line) for line in file]


def allocate(address, size=8):
    return AllocationStep(StepKind.ALLOCATE, address, size)


def free(address, size=8):
    return AllocationStep(StepKind.DEALLOCATE, address, size)


def predicted(*steps, history=History.COMPLETE):
    return [allocation.predicted for allocation in predict_addresses(steps, history).allocations]


class TestRecordings:
    @pytest.mark.parametrize(("mode", "reused"), REUSED)
    def test_every_reused_address_of_a_process_is_predicted(self, mode, reused):
        prediction = predict_addresses(
            steps_of_recording(lines_of(f"allocator-{mode}.jsonl.gz")), History.COMPLETE
        )
        assert prediction.misses == ()
        assert prediction.correct == prediction.reused == reused

    @pytest.mark.parametrize(("mode", "reused"), REUSED_IN_TRACES)
    def test_every_known_reused_address_of_a_scenario_is_predicted(self, mode, reused):
        total = 0
        for trace in lines_of("traces.jsonl.gz"):
            if trace["update_mode"] == mode:
                prediction = predict_addresses(steps_of_trace(trace), History.PARTIAL)
                assert prediction.misses == (), trace["scenario"]
                total += prediction.reused
        assert total == reused

    @pytest.mark.parametrize(("mode", "reused"), REUSED)
    def test_the_allocator_itself_hands_out_the_recorded_addresses(self, mode, reused):
        """The whole process on a page table, at the driver's addresses: nothing overlaps or differs."""
        recorded = RecordedProcess()
        for line in lines_of(f"allocator-{mode}.jsonl.gz"):
            recorded.step(line)
        assert recorded.reused == reused

    def test_a_teardown_that_is_not_noticed_costs_one_miss(self):
        lines = lines_of("allocator-SKIP_TEMP.jsonl.gz")
        teardowns = sum(step == SYNCHRONIZE for step in steps_of_recording(lines))
        steps = [step for step in steps_of_recording(lines) if step != SYNCHRONIZE]
        assert teardowns == 30
        assert len(predict_addresses(steps, History.COMPLETE).misses) <= teardowns


class RecordedProcess:
    """Steps the real allocator through a recording, with the driver's addresses where it chose."""

    def __init__(self):
        self.executor = SimulatedExecutor()
        self.allocator = DeviceAddressVmmAllocator([DeviceConfig(self.executor.create_stream())])
        self.live = {}
        self.reservations = {}
        self.torn_down = None
        self.reused = 0

    def step(self, line):
        if line.get("mark") == "end":
            module = f"jit_{line['scenario']}"
            self.torn_down = module if module in self.reservations else self.torn_down
        elif line.get("op") in ("allocate", "reserve"):
            self.tear_down()
            getattr(self, line["op"])(line)
        elif line.get("op") == "deallocate":
            self.deallocate(line["address"], line["size"])

    def tear_down(self):
        if self.torn_down:
            self.allocator.synchronize_pending_operations(0)
            for reservation in self.reservations.pop(self.torn_down):
                reservation.close()
            self.torn_down = None

    def reserve(self, line):
        self.executor.memory.choose_addresses(line["address"])
        reservation = self.allocator.create_reservation(0, line["size"])
        self.reservations.setdefault(line["module"], []).append(reservation)

    def allocate(self, line):
        fresh = self.executor.memory.reservation_count
        self.executor.memory.choose_addresses(line["address"])
        self.live[line["address"]] = self.allocator.allocate(0, line["size"])
        self.reused += self.executor.memory.reservation_count == fresh
        self.executor.memory.choose_nothing()
        assert self.live[line["address"]].opaque == line["address"]

    def deallocate(self, address, size):
        if address not in self.live:
            # A temp placed in a reservation: XLA logs its free only.
            ranges = [reservation for each in self.reservations.values() for reservation in each]
            reservation = next(r for r in ranges if r.address.opaque <= address < r.address.end)
            offset = address - reservation.address.opaque
            self.live[address] = self.allocator.allocate_at(0, size, reservation, offset)
        self.allocator.deallocate(0, self.live.pop(address))


class TestRule:
    def test_the_oldest_free_of_the_rounded_size(self):
        steps = [
            allocate(A),
            allocate(B, 9 << 20),
            allocate(C, 2 << 20),
            free(C, 2 << 20),
            free(A),
            free(B, 9 << 20),
        ]
        assert predicted(*steps, allocate(C, 1), allocate(A, 1), allocate(B, (8 << 20) + 1))[3:] == [C, A, B]

    def test_the_driver_chooses_when_nothing_fits(self):
        assert predicted(allocate(A), free(A), allocate(B, 3 << 20), allocate(A), allocate(C)) == [
            None,
            None,
            A,
            None,
        ]

    def test_completed_frees_are_gone(self):
        assert predicted(allocate(A), free(A), SYNCHRONIZE, allocate(B)) == [None, None]

    def test_a_temp_in_a_reservation_is_not_reused(self):
        reserve = AllocationStep(StepKind.RESERVE, A, 4 << 20)
        assert predicted(reserve, free(B), allocate(C)) == [None]

    def test_an_old_reservations_address_can_be_an_ordinary_one(self):
        reserve = AllocationStep(StepKind.RESERVE, A, 4 << 20)
        assert predicted(reserve, allocate(B), free(B), allocate(B)) == [None, B]

    def test_nothing_is_null(self):
        assert predicted(allocate(0, 0), free(0, 0), allocate(A)) == [None]

    def test_the_granularity_counts(self):
        steps = [allocate(A, 5), free(A, 5), allocate(B, 500)]
        assert predict_addresses(steps, History.COMPLETE, granularity=256).allocations[1].predicted is None


class TestPartialHistory:
    def test_an_address_not_seen_before_is_not_predicted(self):
        assert predicted(allocate(A), free(A), allocate(B), allocate(A), history=History.PARTIAL) == [
            None,
            None,
            A,
        ]

    def test_a_buffer_from_before_is_known_once_freed(self):
        assert predicted(free(A), allocate(A), history=History.PARTIAL) == [A]


class TestMisses:
    def test_what_was_passed_over_is_gone(self):
        steps = [allocate(A), allocate(B), allocate(C), free(A), free(B), free(C)]
        assert predicted(*steps, allocate(B), allocate(C), allocate(A))[3:] == [A, C, None]

    def test_what_was_freed_before_it_is_gone_too(self):
        large, small = 9 << 20, 8
        steps = [allocate(A, large), allocate(B, small), allocate(C, small), allocate(D, large)]
        steps += [free(A, large), free(B, small), free(D, large), free(C, small)]
        assert predicted(*steps, allocate(C, small), allocate(D, large))[4:] == [B, D]

    def test_a_fresh_address_shows_that_nothing_was_pending(self):
        steps = [allocate(A), allocate(B), free(A), free(B)]
        assert predicted(*steps, allocate(C), allocate(D))[2:] == [A, None]

    def test_an_address_that_comes_back_in_another_size_was_completed(self):
        steps = [allocate(A, 9 << 20), allocate(B), allocate(C), free(A, 9 << 20), free(B), free(C)]
        assert predicted(*steps, allocate(A), allocate(D), allocate(B, 9 << 20))[3:] == [B, None, None]

    def test_misses_are_listed(self):
        prediction = predict_addresses([allocate(A), free(A), allocate(B)], History.COMPLETE)
        assert (prediction.reused, prediction.correct) == (1, 0)
        assert [(miss.predicted, miss.recorded, miss.size) for miss in prediction.misses] == [(A, B, 8)]


class TestReaders:
    @pytest.mark.parametrize("remapped", [False, True])
    def test_the_end_of_a_remapped_scenario_is_a_teardown(self, remapped):
        lines = [
            {"mark": "begin", "scenario": "s"},
            *([{"op": "reserve", "module": "jit_s", "address": D, "size": 1 << 21}] if remapped else []),
            {"mark": "exec_begin", "scenario": "s", "i": 0},
            {"op": "allocate", "address": A, "size": 8},
            {"op": "execute", "module": "jit_s"},
            {"mark": "end", "scenario": "s"},
            {"op": "deallocate", "address": A, "size": 8},
            {"mark": "begin", "scenario": "t"},
            {"op": "allocate", "address": A, "size": 8},
        ]
        kinds = [step.kind for step in steps_of_recording(lines) if step.kind is not StepKind.RESERVE]
        teardown = [StepKind.SYNCHRONIZE] if remapped else []
        assert kinds == [StepKind.ALLOCATE, StepKind.DEALLOCATE, *teardown, StepKind.ALLOCATE]

    def test_a_range_reserved_outside_of_scenarios_stays(self):
        lines = [
            {"op": "reserve", "module": "jit_convert", "address": D, "size": 1 << 21},
            {"mark": "begin", "scenario": "s"},
            {"mark": "end", "scenario": "s"},
            {"op": "allocate", "address": A, "size": 8},
        ]
        assert SYNCHRONIZE not in list(steps_of_recording(lines))

    def test_a_trace_gives_events_between_executions_and_of_threads_too(self):
        trace = {
            "executions": [
                {
                    "events": [
                        {"kind": "reserve", "address": D, "total_size": 9},
                        {"kind": "allocate", "address": A, "size": 8},
                        {"kind": "profile_step", "step": 1},
                    ],
                    "events_after": [{"kind": "deallocate", "address": A, "size": 8}],
                },
                {"events": []},
            ],
            "thread_events": [{"kind": "allocate", "address": B, "size": 8}],
        }
        reserve = AllocationStep(StepKind.RESERVE, D, 9)
        assert list(steps_of_trace(trace)) == [reserve, allocate(A), free(A), allocate(B)]

    def test_a_line_or_event_without_a_field_is_named(self):
        with pytest.raises(InputError, match=r"line 2 .*'size'"):
            list(steps_of_recording([{"mark": "begin"}, {"op": "allocate", "address": A}]))
        with pytest.raises(InputError, match="'address'"):
            list(steps_of_trace({"executions": [{"events": [{"kind": "allocate"}]}]}))


def test_the_predictor_can_be_asked_step_by_step():
    predictor = ReusePredictor()
    assert predictor.allocate(8, A) is None
    predictor.deallocate(A, 8)
    assert predictor.allocate(9, A) == A
    predictor.deallocate(A, 9)
    predictor.synchronize()
    assert predictor.allocate(8, B) is None
