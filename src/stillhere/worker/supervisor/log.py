"""Logging that cannot stop a supervisor: a pipe that nobody reads must not silence its beats, nor keep it from ending.

Records go into a bounded queue; one thread writes them to standard error, and may hang there. When the queue is full a
record is dropped and counted, and the count is told once there is room. The thread writes to the descriptor itself:
Python's own stream has a lock, and whoever else flushes it would hang with a thread that hangs in it. Children
write to standard error themselves: making the shared descriptor non-blocking would make *their* writes fail.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading

from stillhere.worker.formatters import formatter

LIMIT = 1000


class QueueLog(logging.Handler):
    """A handler that never blocks."""

    def __init__(self, fd: int | None) -> None:
        """Start the thread that writes to this descriptor; None: there is nowhere to write to."""
        super().__init__()
        self._fd = fd
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(LIMIT)
        self._dropped = 0
        self._thread = threading.Thread(target=self._serve, name="stillhere-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue it, or drop it."""
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def finish(self, within_s: float = 0.5) -> None:
        """Give the thread a moment to write what is left."""
        try:
            self._records.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(within_s)

    def _serve(self) -> None:
        while (record := self._records.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            try:
                if dropped:
                    self._write(f"({dropped} lines were dropped here: standard error was not read)")
                self._write(self.format(record))
            except OSError:
                self._fd = None  # nobody will ever read it: keep emptying the queue
            except Exception:  # noqa: BLE001 - a record that cannot be formatted is our fault, and no reason to fall silent
                self._write(f"(a line could not be written: {record.msg!r})")

    def _write(self, text: str) -> None:
        data = f"{text}\n".encode(errors="backslashreplace")
        while data and self._fd is not None:
            data = data[os.write(self._fd, data) :]


def start_logging(form: str, level: str, who: str = "supervisor") -> QueueLog:
    """Make it the one handler of this process; `who` stands in each line."""
    handler = QueueLog(sys.stderr.fileno() if sys.stderr is not None else None)
    handler.setFormatter(formatter(form, who))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return handler
