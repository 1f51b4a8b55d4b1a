"""Pieces of work end whatever happens to who asked for them, one after the other."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable

import pytest

from jax_cmdbuf.api.uninterrupted import UninterruptedWork


class _Asks:
    """A cycle that asks for work when it is collected."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask, self._cycle = ask, self

    def __del__(self) -> None:
        self._ask()


def test_a_signal_waits_for_the_end_of_the_work() -> None:
    done: list[str] = []

    def work() -> None:
        done.append("begun")
        # The main thread waits now; its handler runs there at once.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        done.append("ended")

    single = UninterruptedWork()
    with pytest.raises(KeyboardInterrupt):
        single.do(work)
    assert done == ["begun", "ended"]
    single.do(lambda: done.append("next"))
    assert done[-1] == "next"


def test_what_a_finalizer_asks_for_is_done_after_what_it_interrupts() -> None:
    single, order = UninterruptedWork(), list[str]()

    def ask() -> None:
        assert single.is_asked_from_inside
        single.do(lambda: order.append("finalizer's"))

    def work() -> None:
        _Asks(ask)
        gc.collect()
        order.append("work")

    single.do(work)
    assert order == ["work", "finalizer's"]
    assert not single.is_asked_from_inside


def test_threads_take_turns() -> None:
    single, inside, most = UninterruptedWork(), list[int](), list[int]()

    def work() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    threads = [threading.Thread(target=lambda: [single.do(work) for _ in range(10)]) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 200


def test_where_no_thread_can_be_started_the_caller_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    UninterruptedWork().do(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_the_work_leaves_nothing_locked() -> None:
    single, done = UninterruptedWork(), list[int]()

    def fail() -> None:
        raise ZeroDivisionError

    single.do(fail)
    single.do(lambda: done.append(1))
    assert done == [1]


def test_a_program_that_ends_still_does_its_work(run_python: Callable[..., object]) -> None:
    done = run_python(
        "import atexit\n"
        "from jax_cmdbuf.api.uninterrupted import UninterruptedWork\n"
        "atexit.register(lambda: UninterruptedWork().do(lambda: print('done')))"
    )
    assert getattr(done, "stdout", "") == "done\n", done
