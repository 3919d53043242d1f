"""Threads for `def` tasks: our own, never the loop's default executor, and none that a process would wait for.

A thread in a C call cannot be stopped. The threads of `concurrent.futures` are joined when the interpreter ends, so one
such call would keep a dead worker's process for ever; these are daemon threads in a pool of our own. There are as many
as jobs that ever ran at once, at most slots + long places, because nothing is claimed without a seat.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Threads:
    """Runs functions in threads that it keeps."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0
        self._busy: set[int] = set()
        self._threads: list[threading.Thread] = []

    @property
    def busy(self) -> int:
        """How many functions have not returned."""
        return len(self._busy)

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread that is idle, or in a new one. It must not raise.

        Raises `RuntimeError` when the system gives no more threads; nothing has run then.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                thread = threading.Thread(target=self._serve, name=f"stillhere-job-{self._count + 1}", daemon=True)
                thread.start()
                self._count += 1
                self._threads.append(thread)
        self._work.put(work)

    def close(self) -> None:
        """Let idle threads end, and the others when they are done."""
        for _ in range(self._count):
            self._work.put(None)

    @property
    def alive(self) -> int:
        """How many threads there are."""
        return sum(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        me = threading.get_ident()
        while (work := self._work.get()) is not None:
            self._busy.add(me)
            try:
                work()
            finally:
                self._busy.discard(me)
            with self._lock:
                self._idle += 1
