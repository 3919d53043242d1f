"""Logging that cannot stop a supervisor: a pipe that nobody reads must not silence its beats.

Records go into a bounded queue; one thread writes them to standard error, and may hang there. When the queue is full a
record is dropped and counted, and the count is told once there is room. Children write to standard error themselves:
making the shared descriptor non-blocking would make *their* writes fail.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading

from stillhere.worker.formatters import formatter

LIMIT = 1000


class QueueLog(logging.Handler):
    """A handler that never blocks."""

    def __init__(self) -> None:
        """Start the writing thread."""
        super().__init__()
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(LIMIT)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="stillhere-log", daemon=True)
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

    def _write(self) -> None:
        while (record := self._records.get()) is not None:
            text = self.format(record)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                text += f"\n({dropped} lines dropped here: standard error was not read)"
            try:
                sys.stderr.write(text + "\n")
                sys.stderr.flush()
            except OSError:
                return


def start_logging(form: str, level: str) -> QueueLog:
    """Make it the one handler of this process."""
    handler = QueueLog()
    handler.setFormatter(formatter(form, "supervisor"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return handler
