"""The gate between XLA's threads and Python: a few machine instructions that outlive the interpreter.

A ctypes callback takes the GIL before it runs a single line of Python, and a thread that asks for the GIL of
an interpreter that is going down is ended in the middle of XLA's C++ frames, which ends the process. XLA may
still execute then: its threads are its own. So XLA is given an address that stays valid for ever, outside
Python: it counts the calls inside, and passes them on only while the gate is open. Closing it (``atexit``)
shuts newcomers out with success and waits for those inside.

Invariants: after ``close`` no call reaches Python; what XLA gets back is what Python wrote to the result
slot, or null, never a register that a failed callback left behind; the memory XLA can reach is never freed.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import mmap
import platform
import struct
import time
from collections.abc import Callable

import jax

__all__ = ["CLOSE_TIMEOUT_S", "Gate", "process_gate"]

# Python side of a call: (address of the call frame, address of the slot for the error) -> nothing.
Entered = Callable[[int, int], None]
_CLOSURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_DIRECT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

CLOSE_TIMEOUT_S = 5.0


def _x86_64(state: int, target: int) -> bytes:
    """System V AMD64: ``void* f(void* frame)`` around ``void target(void* frame, void** slot)``."""
    load_state = b"\x49\xba" + struct.pack("<Q", state)  # mov r10, state
    call = (
        b"\x48\x8d\x74\x24\x08"  # lea rsi, [rsp+8]
        + (b"\x48\xb8" + struct.pack("<Q", target))  # mov rax, target
        + b"\xff\xd0"  # call rax
    )
    return (
        b"\xf3\x0f\x1e\xfa"  # endbr64
        b"\x48\x83\xec\x18"  # sub rsp, 24: aligns the stack, makes the slot
        b"\x48\xc7\x44\x24\x08\x00\x00\x00\x00"  # mov qword [rsp+8], 0
        + load_state
        + b"\xf0\x49\xff\x02"  # lock inc qword [r10]: inside
        + b"\x49\x83\x7a\x08\x00"  # cmp qword [r10+8], 0: closed?
        + (b"\x75" + bytes([len(call)]))  # jne past the call
        + call
        + load_state
        + b"\xf0\x49\xff\x0a"  # lock dec qword [r10]: outside
        + b"\x48\x8b\x44\x24\x08"  # mov rax, [rsp+8]
        + b"\x48\x83\xc4\x18"  # add rsp, 24
        + b"\xc3"  # ret
    )


def _aarch64(state: int, target: int) -> bytes:
    """AAPCS64, the same. Exclusive loads and stores, so that no newer instructions are needed."""

    def add_to_count(instruction: int) -> tuple[int, ...]:
        return (
            0xC85FFD2A,  # ldaxr x10, [x9]
            instruction,
            0xC80BFD2A,  # stlxr w11, x10, [x9]
            0x35FFFFAB,  # cbnz w11, back to ldaxr
            0xD5033BBF,  # dmb ish: the count is seen before the flag is read
        )

    words = (
        0xD503245F,  # bti c
        0xA9BE7BFD,  # stp x29, x30, [sp, #-32]!
        0xF9000BFF,  # str xzr, [sp, #16]: the slot
        0x580002A9,  # ldr x9, state
        *add_to_count(0x9100054A),  # add x10, x10, #1: inside
        0xF940052A,  # ldr x10, [x9, #8]: closed?
        0xB500008A,  # cbnz x10, past the call
        0x910043E1,  # add x1, sp, #16
        0x580001CC,  # ldr x12, target
        0xD63F0180,  # blr x12
        0x58000149,  # ldr x9, state
        *add_to_count(0xD100054A),  # sub x10, x10, #1: outside
        0xF9400BE0,  # ldr x0, [sp, #16]
        0xA8C27BFD,  # ldp x29, x30, [sp], #32
        0xD65F03C0,  # ret
        0xD503201F,  # nop: aligns the two addresses that follow to 8 bytes
    )
    return struct.pack(f"<{len(words)}I", *words) + struct.pack("<QQ", state, target)


_ASSEMBLERS = {"x86_64": _x86_64, "amd64": _x86_64, "aarch64": _aarch64, "arm64": _aarch64}


class Gate:
    """Passes calls on to Python until it is closed.

    Attributes:
      is_guarded: whether this machine lets us make the native entry; without it calls go to Python directly
        and only the interpreter's own end is unprotected.
    """

    def __init__(self) -> None:
        self._assemble = _ASSEMBLERS.get(platform.machine().lower())
        self._state = (ctypes.c_int64 * 2)()  # calls inside, closed
        _keep_for_ever(self._state)
        self.is_guarded = self._assemble is not None

    @property
    def inside(self) -> int:
        """Calls that are in Python now."""
        return self._state[0]

    @property
    def is_closed(self) -> bool:
        """Whether calls are shut out."""
        return bool(self._state[1])

    def entry(self, entered: Entered) -> int:
        """An address for XLA to call: ``XLA_FFI_Error* (XLA_FFI_CallFrame*)``.

        Args:
          entered: gets the call frame's address and the address where an error's address goes. It should not
            raise: the interpreter prints what it raises, and XLA sees success.
        """
        if self._assemble is not None:
            closure = _CLOSURE(entered)
            code = self._assemble(
                ctypes.addressof(self._state), ctypes.cast(closure, ctypes.c_void_p).value or 0
            )
            if address := _executable(code):
                _keep_for_ever(closure)
                return address
            self.is_guarded = False
        direct = _DIRECT(functools.partial(self._enter_unguarded, entered))
        _keep_for_ever(direct)
        return ctypes.cast(direct, ctypes.c_void_p).value or 0

    def _enter_unguarded(self, entered: Entered, frame: int) -> int | None:
        slot = ctypes.c_void_p()
        if not self.is_closed:
            entered(frame, ctypes.addressof(slot))
        return slot.value

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Shuts new calls out and waits for those inside; may be called again.

        Returns:
          Whether all are out; False when one of them took longer than ``timeout_s``.
        """
        self._state[1] = 1
        deadline = time.monotonic() + timeout_s
        while self._state[0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0005)  # lets go of the GIL, which those inside need
        return True


def _executable(code: bytes) -> int:
    """Address of ``code`` in memory of its own that can run and no longer be written; 0: not allowed here."""
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return 0
    memory.write(code)
    # The exported buffer keeps the mapping from ever being closed.
    pinned = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(pinned)
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        return 0
    _keep_for_ever(pinned)
    return address


def _keep_for_ever(value: object) -> None:
    # A plain reference would die with the module's dictionary, while XLA's threads may still come by.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


@functools.cache
def process_gate() -> Gate:
    """The gate of this process; it closes when the interpreter exits."""
    gate = Gate()
    atexit.register(_close_at_exit, gate)
    return gate


def _close_at_exit(gate: Gate) -> None:
    try:
        # What was dispatched before the end still runs its handlers, so no record is lost.
        jax.effects_barrier()  # type: ignore[no-untyped-call]
    finally:
        gate.close()
