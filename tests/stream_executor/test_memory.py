from __future__ import annotations

import pytest

from jax_cmdbuf.errors import StatusCode, StatusError
from jax_cmdbuf.stream_executor.memory import DriverError, is_backed_by, retain_allocation
from jax_cmdbuf.stream_executor.simulated import SimulatedExecutor

GRANULE = 2 << 20


@pytest.fixture
def executor():
    executor = SimulatedExecutor()
    yield executor
    assert executor.memory.is_empty
    assert executor.memory.needless_unmaps == 0


@pytest.fixture
def handles(executor):
    """(allocation, reservation) of one and two granules, closed at the end."""
    with (
        executor.create_allocation(GRANULE) as allocation,
        executor.create_reservation(2 * GRANULE) as reservation,
    ):
        yield allocation, reservation


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY", StatusCode.RESOURCE_EXHAUSTED),
        ("CUDA_ERROR_NOT_FOUND", StatusCode.NOT_FOUND),
        ("CUDA_ERROR_INVALID_VALUE", StatusCode.INTERNAL),
    ],
)
def test_driver_errors_have_the_status_xla_gives_them(error, code):
    raised = DriverError("cuMemMap", error, "why")
    assert raised.code is code
    assert "cuMemMap" in str(raised)
    assert error in str(raised)


def test_closing_twice_is_closing_once(executor):
    allocation, reservation = executor.create_allocation(1), executor.create_reservation(1)
    mapping = reservation.map_to(0, GRANULE, allocation)
    for handle, call in (
        (mapping, "cuMemUnmap"),
        (reservation, "cuMemAddressFree"),
        (allocation, "cuMemRelease"),
    ):
        assert not handle.closed
        handle.close()
        handle.close()
        assert handle.closed
        assert executor.driver.calls[call] == 1


@pytest.mark.parametrize("call", ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"])
def test_a_refused_close_can_be_repeated(executor, call):
    executor.driver.fail(call)
    allocation, reservation = executor.create_allocation(1), executor.create_reservation(1)
    handles = {"cuMemUnmap": reservation.map_to(0, GRANULE, allocation)}
    handles |= {"cuMemAddressFree": reservation, "cuMemRelease": allocation}
    for name, handle in handles.items():
        if name == call:
            with pytest.raises(DriverError):
                handle.close()
            assert not handle.closed
        handle.close()
        assert handle.closed


def test_a_reservation_with_mappings_cannot_be_closed(handles):
    allocation, reservation = handles
    with reservation.map_to(0, GRANULE, allocation):
        with pytest.raises(DriverError, match="cuMemAddressFree"):
            reservation.close()
        assert not reservation.closed


def test_memory_outlives_its_handle_while_mapped(executor):
    reservation, allocation = executor.create_reservation(1), executor.create_allocation(1)
    mapping = reservation.map_to(0, GRANULE, allocation)
    allocation.close()
    executor.create_stream().submit([mapping.address])
    mapping.close()
    reservation.close()


def test_a_mapping_names_what_it_connects(handles):
    allocation, reservation = handles
    with reservation.map_to(GRANULE, GRANULE, allocation) as mapping:
        assert mapping.address == reservation.address.slice(GRANULE, GRANULE)
        assert mapping.allocation is allocation
        assert mapping.reservation is reservation


@pytest.mark.parametrize("call", ["cuMemMap", "cuMemSetAccess"])
def test_mapping_that_fails_midway_leaves_nothing(executor, handles, call):
    allocation, reservation = handles
    executor.driver.fail(call)
    with pytest.raises(DriverError):
        reservation.map_to(0, GRANULE, allocation)
    assert executor.memory.mapping_count == 0


def test_mapping_outside_the_range_is_refused_before_the_driver_is_asked(executor, handles):
    allocation, reservation = handles
    with pytest.raises(StatusError) as caught:
        reservation.map_to(2 * GRANULE, GRANULE, allocation)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert executor.driver.calls["cuMemMap"] == 0


def test_handles_say_what_they_are(handles):
    allocation, reservation = handles
    with reservation.map_to(0, GRANULE, allocation) as mapping:
        text = f"{allocation} {reservation} {mapping}"
    assert text.count("closed=False") == 3


def test_memory_that_another_handed_out_can_be_held(executor, handles):
    allocation, reservation = handles
    with reservation.map_to(0, GRANULE, allocation) as mapping:
        held = retain_allocation(executor.memory, mapping.address.slice(0, 1000))
        assert (held.handle, held.size) == (allocation.handle, GRANULE)
        assert is_backed_by(executor.memory, mapping.address, held)
        assert retain_allocation(executor.memory, mapping.address.slice(256, 1000)) is None
        assert retain_allocation(executor.memory, reservation.address) is None
    assert not is_backed_by(executor.memory, reservation.address, held)
    assert retain_allocation(executor.memory, reservation.address.slice(0, GRANULE)) is None
    allocation.close()
    assert executor.memory.used_bytes == GRANULE
    held.close()
    assert executor.memory.used_bytes == 0
