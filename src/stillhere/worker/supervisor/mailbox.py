"""How other threads have the main thread do something: they put a call in, and wake it by a byte in its signal pipe."""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Callable
from typing import Any


class Mailbox:
    """Calls for the main thread, in order."""

    def __init__(self, nudge_fd: int) -> None:
        """`nudge_fd`: the writing end of the pipe; it does not block, and a full pipe wakes as well as another byte."""
        self._nudge_fd = nudge_fd
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    @property
    def is_empty(self) -> bool:
        """Whether all calls have been made."""
        return self._calls.empty()

    def post(self, call: Callable[..., None], *args: Any) -> None:
        """Have the main thread call this; from any thread."""
        self._calls.put(lambda: call(*args))
        with contextlib.suppress(BlockingIOError):
            os.write(self._nudge_fd, b"\0")

    def deliver(self) -> None:
        """Make the calls; on the main thread."""
        while not self._calls.empty():
            self._calls.get()()
