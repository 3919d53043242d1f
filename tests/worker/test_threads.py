"""The threads of `def` tasks: kept, reused, never waited for by the interpreter."""

from __future__ import annotations

import gc
import queue
import sys
import threading
from collections.abc import Callable

import pytest

from stillhere.worker.child import threads as module
from stillhere.worker.child.threads import Call, Threads
from tests.support.procs import eventually


def test_threads_are_reused_and_counted_while_busy() -> None:
    threads, seen, go = Threads(), set(), threading.Event()
    done = threading.Semaphore(0)

    def work() -> None:
        seen.add(threading.current_thread())
        done.release()

    def wait() -> None:
        go.wait(5)

    for _ in range(5):
        threads.submit(work)
        done.acquire(timeout=5)
        eventually(lambda: threads.busy == 0, 5)
        eventually(lambda: threads._idle == 1, 5)
    assert len(seen) == 1
    for _ in range(3):
        threads.submit(wait)
    eventually(lambda: threads.busy == 3, 5)
    go.set()
    eventually(lambda: threads.busy == 0, 5)
    assert threads._count == 3
    assert all(thread.daemon for thread in seen)


def test_closing_ends_them_when_they_are_done() -> None:
    threads, go, inside = Threads(), threading.Event(), threading.Event()
    seen: list[threading.Thread] = []

    def work() -> None:
        seen.append(threading.current_thread())
        inside.set()
        go.wait(5)

    threads.submit(work)
    assert inside.wait(5)
    threads.close()
    assert seen[0].is_alive()
    go.set()
    seen[0].join(5)
    assert not seen[0].is_alive()


class Stop(BaseException):
    """What interrupts."""


class TestCall:
    """An exception set from outside: it comes out of the call it was meant for, once, or never."""

    def in_thread(self, call: Call, function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
        ends: list[object] = []

        def run() -> None:
            try:
                ends.append(call.run(function))
            except BaseException as error:  # noqa: BLE001 - that is what is looked at
                ends.append(type(error))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread, ends

    def test_it_comes_out_of_the_call(self) -> None:
        call, inside = Call(), threading.Event()

        def spins() -> None:
            inside.set()
            while True:
                pass

        thread, ends = self.in_thread(call, spins)
        assert inside.wait(5)
        assert call.interrupt(Stop)
        thread.join(5)
        assert ends == [Stop]

    def test_it_comes_once(self) -> None:
        """What the function does on its way out is not interrupted again."""
        call, inside, leaving, go = Call(), threading.Event(), threading.Event(), threading.Event()

        def cleans_up() -> None:
            try:
                inside.set()
                while True:
                    pass
            finally:
                leaving.set()
                go.wait(5)

        thread, ends = self.in_thread(call, cleans_up)
        assert inside.wait(5)
        assert call.interrupt(Stop)
        assert leaving.wait(5)
        assert not call.interrupt(KeyError)
        go.set()
        thread.join(5)
        assert ends == [Stop]

    def test_not_before_and_not_after_the_call(self) -> None:
        call = Call()
        assert not call.interrupt(Stop)
        assert call.run(lambda: 5) == 5
        assert not call.interrupt(Stop)
        assert sum(range(1_000)) == 499_500, "this thread is not hit"

    def test_what_comes_too_late_is_taken_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Under the lock, while nobody else can set one, and before the call counts as over."""
        call, seen = Call(), []

        def take_back(thread: int, error: object) -> None:
            seen.append((thread == threading.get_ident() == call._thread, call._lock.locked(), error))

        monkeypatch.setattr(module, "_set_exception", take_back)
        call.run(lambda: None)
        assert seen == [(True, True, None)]

    def test_at_whatever_moment_it_comes_nothing_outside_of_the_call_is_hit(self) -> None:
        """Thousands of short calls in one thread, each interrupted at some moment by another thread."""
        calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        hit: list[int] = []
        outside: list[BaseException] = []
        counts = [0, 0]

        def interrupts() -> None:
            while (call := calls.get()) is not None:
                hit.append(call.interrupt(Stop))

        def works() -> None:
            try:
                for turn in range(5_000):
                    call = Call()
                    calls.put(call)
                    try:
                        call.run(lambda turn=turn: sum(range(turn % 50 * 20)))  # type: ignore[misc]  # mypy cannot infer it
                        counts[0] += 1
                    except Stop:
                        counts[1] += 1
                    for _ in range(50):
                        pass
            except BaseException as error:  # noqa: BLE001 - that is the fault that is looked for
                outside.append(error)

        threads = [threading.Thread(target=one, daemon=True) for one in (interrupts, works)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        gc.disable()  # what is raised in a collector's callback is lost, as in any
        try:
            for thread in threads:
                thread.start()
            threads[1].join(30)
            calls.put(None)
            threads[0].join(5)
        finally:
            sys.setswitchinterval(interval)
            gc.enable()
        assert outside == []
        assert sum(counts) == 5_000
        assert counts[1] <= sum(hit)
        assert counts[1] > 0, "some were hit inside"
