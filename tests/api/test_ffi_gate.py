from __future__ import annotations

import ctypes
import struct
import threading

import pytest

from jax_cmdbuf.api import ffi_gate
from jax_cmdbuf.api.ffi_gate import Gate

CALL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


@pytest.fixture(params=["native", "direct"])
def gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate with the machine's own entry, and one as on a machine that has none."""
    if request.param == "direct":
        monkeypatch.setattr(ffi_gate, "_ASSEMBLERS", {})
    return Gate()


def set_slot(slot: int, value: int) -> None:
    ctypes.c_uint64.from_address(slot).value = value


def test_a_call_gets_through_and_its_slot_comes_back(gate: Gate) -> None:
    frames: list[int] = []

    def entered(frame: int, slot: int) -> None:
        frames.append(frame)
        if frame == 7:
            set_slot(slot, 0xDEADBEEF0000)

    call = CALL(gate.entry(entered))
    assert call(5) is None
    assert call(7) == 0xDEADBEEF0000
    assert frames == [5, 7]
    assert gate.inside == 0


def test_a_closed_gate_answers_success_without_python(gate: Gate) -> None:
    frames: list[int] = []
    call = CALL(gate.entry(lambda frame, slot: frames.append(frame)))
    assert gate.close()
    assert gate.is_closed
    assert call(5) is None
    assert frames == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_that_escapes_is_success_to_the_caller() -> None:
    """Never the register's garbage, which XLA would take for an error's address."""
    gate = Gate()
    assert gate.is_guarded
    call = CALL(gate.entry(lambda frame, slot: 1 // 0))
    assert call(5) is None
    assert gate.inside == 0


def test_closing_waits_for_those_inside() -> None:
    gate = Gate()
    inside, leave = threading.Event(), threading.Event()

    def entered(frame: int, slot: int) -> None:
        inside.set()
        leave.wait(10)

    call = CALL(gate.entry(entered))
    thread = threading.Thread(target=call, args=(1,))
    thread.start()
    inside.wait(10)
    assert gate.inside == 1
    assert not gate.close(timeout_s=0.01)
    leave.set()
    assert gate.close(timeout_s=10)
    thread.join()
    assert gate.inside == 0


def test_each_entry_has_its_own_function_and_they_share_the_gate() -> None:
    gate, seen = Gate(), []
    calls = [CALL(gate.entry(lambda frame, slot, i=i: seen.append((i, frame)))) for i in range(3)]
    for call in calls:
        call(9)
    gate.close()
    for call in calls:
        call(9)
    assert seen == [(0, 9), (1, 9), (2, 9)]


def test_the_arm_code_loads_its_two_literals() -> None:
    """Its behaviour was tried under emulation; what an edit breaks first are the literals' distances."""
    state, target = 0x1122334455667788, 0x99AABBCCDDEEFF00
    code = ffi_gate._aarch64(state, target)
    words = struct.unpack(f"<{len(code) // 4}I", code)
    loaded = []
    for place, word in enumerate(words):
        if word >> 24 == 0x58:  # ldr x, literal
            distance = (word >> 5 & 0x7FFFF) * 4
            loaded.append(struct.unpack_from("<Q", code, place * 4 + distance)[0])
    assert loaded == [state, target, state]
    assert len(code) % 8 == 0


def test_the_process_gate_is_one() -> None:
    assert ffi_gate.process_gate() is ffi_gate.process_gate()
