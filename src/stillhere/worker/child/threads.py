"""Threads for `def` tasks: our own, never the loop's default executor, and none that a process would wait for.

A thread in a C call cannot be stopped. The threads of `concurrent.futures` are joined when the interpreter ends, so one
such call would keep a dead worker's process for ever; these are daemon threads in a pool of our own. There are as many
as jobs that ever ran at once, at most slots + long places, because nothing is claimed without a seat; a solo worker has
one more, to clean up.

A thread that runs Python code can be told to stop by an exception that the interpreter raises in it at the next
instruction. It must hit the function it is meant for and nothing else in that thread: it is set under a lock and only
while the function is being called, and taken back, under the same lock, when the call is over.
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

LOOK_S = 0.005

_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_exception.argtypes = [ctypes.c_ulong, ctypes.c_void_p]  # an object, or NULL: take it back


class Call:
    """One call of a user's function in a thread, which another thread can interrupt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = 0
        self._interrupted = False

    def run(self, function: Callable[[], R]) -> R:
        """Call it, here; what `interrupt` raises comes out of this call or never."""
        self._thread = threading.get_ident()
        try:
            return function()
        finally:
            self._leave()

    def interrupt(self, error: type[BaseException]) -> bool:
        """Raise this in the call, once, if it is under way and comes to an instruction of Python's.

        Only once: what it does on its way out should not be interrupted again.
        """
        with self._lock:
            if not self._thread or self._interrupted:
                return False
            self._interrupted = True
            _set_exception(self._thread, id(error))
            return True

    def _leave(self) -> None:
        while self._thread:
            try:
                with self._lock:
                    _set_exception(self._thread, None)
                    self._thread = 0
            except BaseException:  # noqa: BLE001, S112 - the interruption itself, come late: the call is over
                continue


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

    async def settle(self, within_s: float) -> int:
        """Give those that are on their way back a moment; how many functions have not returned then."""
        loop = asyncio.get_running_loop()
        over = loop.time() + within_s
        while self._busy and loop.time() < over:  # noqa: ASYNC110 - a thread that is stuck would never set an event
            await asyncio.sleep(LOOK_S)
        return self.busy

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
