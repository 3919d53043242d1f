"""The threads of `def` tasks: kept, reused, never waited for by the interpreter."""

from __future__ import annotations

import threading

from stillhere.worker.child.threads import Threads
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
