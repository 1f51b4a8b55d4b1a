"""A replay as rows, cells and columns."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from jax_cmdbuf.executable.conversion import convert
from jax_cmdbuf.executable.executable import Executable
from jax_cmdbuf.executable.targets import load_target
from jax_cmdbuf.report.timeline import CellState, make_timeline
from jax_cmdbuf.runtime.guard import FIDELITY, Guarded
from jax_cmdbuf.runtime.replay import replay
from jax_cmdbuf.runtime.scenario import load_scenario
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor

DATA = Path(__file__).parents[1] / "data" / "va_remap"


class Device:
    """A simulated device as a replay needs it."""

    def __init__(self):
        self.executor = SimulatedExecutor()
        self.stream = self.executor.create_stream()
        self.choose_address = self.executor.memory.choose_addresses
        self.verify_aliases = self.stream.check_aliases


@cache
def timeline(name, mode="SKIP_PROFILED", guard=FIDELITY):
    folder = DATA / name
    executable = Executable.from_bytes(gzip.decompress((folder / "executable.bin.gz").read_bytes()))
    conversion = convert(executable, device=load_target("h200").device)
    return make_timeline(
        replay(load_scenario(folder / f"{mode}.json.gz"), executable, conversion, Device(), guard)
    )


def cells(made, index):
    (row,) = [row for row in made.rows if row.allocation == index]
    return "".join({"profiled": "p", "remapped": "r"}.get(cell.value, cell.name[0]) for cell in row.cells)


def test_rows_are_the_allocations_of_command_buffers_with_their_end_and_reason():
    made = timeline("two_gemm_drop")
    assert [row.allocation for row in made.rows] == [0, 1, 2, 3, 10]
    assert [row.state for row in made.rows] == ["rejected", "remapped", "remapped", "remapped", "remapped"]
    assert made.rows[0].reason == "its address changed while it was observed"
    assert made.rows[4].path == "temporary"
    assert made.mode == "SKIP_PROFILED"


def test_cells_tell_profiled_remapped_and_moved():
    made = timeline("two_gemm_drop")
    assert cells(made, 1) == "ppprrrrr"
    assert list(made.rows[0].cells) == [
        CellState.PROFILED,
        CellState.PROFILED_MOVED,
        CellState.PROFILED_MOVED,
        *[CellState.MOVED] * 5,
    ]


def test_a_remapped_address_that_moves_is_a_cell_of_its_own():
    moved = [
        (row.allocation, number)
        for row in timeline("mlp_change_after").rows
        for number, cell in enumerate(row.cells)
        if cell is CellState.REMAPPED_MOVED
    ]
    assert [number for _, number in moved] == [5]


def test_columns_count_what_command_buffers_did():
    columns = timeline("two_gemm_drop").columns
    assert [column.fallbacks for column in columns] == [1] * 3 + [0] * 5
    assert (columns[3].recorded, columns[3].transition) == (4, "active")
    assert (columns[4].updated, columns[4].skipped, columns[4].submitted) == (3, 1, 1)


def test_nested_updates_are_counted_once():
    columns = timeline("scan_loop", "ALWAYS_UPDATE").columns
    # Three buffers: one of 3 commands, one of 6 that runs 8 times with 2 of them, later all, always updated.
    assert columns[0].submitted == 9
    assert columns[0].updated == 8 * 2
    assert columns[1].updated == 3 + 6 + 7 * 2


def test_constants_and_modes_without_profile():
    made = timeline("big_constant", "ALWAYS_UPDATE")
    constants = [row for row in made.rows if row.role == "constant"]
    assert len(constants) == 1
    assert set(constants[0].cells) == {CellState.CONSTANT}
    assert {row.state for row in made.rows} == {"constant", "dynamic"}


@pytest.mark.parametrize(
    ("name", "error"), [("donate_external_hold", "INVALID_ARGUMENT"), ("failed_exec", "INTERNAL")]
)
def test_failed_executions_have_their_error(name, error):
    made = timeline(name)
    failed = [column.error for column in made.columns if column.error]
    assert failed
    assert all(text.startswith(error) for text in failed)


def test_a_program_that_did_not_run_has_no_state():
    assert {cell for row in timeline("donate_external_hold").rows for cell in row.cells} == {
        CellState.NOT_RUN
    }


def test_a_demoted_allocation_says_why():
    made = timeline("shared_param_late", guard=Guarded())
    (row,) = [row for row in made.rows if row.state == "demoted"]
    assert "ALREADY_EXISTS" in row.reason
    assert row.cells[-1] is CellState.SAME
