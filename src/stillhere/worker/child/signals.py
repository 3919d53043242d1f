"""The first thing a child does: hear the signals that mean "stop", before a slow import can make it deaf to them.

It imports nothing but `signal`. What comes before there is a loop is noted, and read where the child waits; the loop
replaces these handlers by its own. Signals that were ignored or blocked when this process was started would be so in
the programs that handlers start, so both are set back here. The handler is a function of Python's and never SIG_IGN,
since only the former does not pass through exec.
"""

from __future__ import annotations

import signal

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""They mean "drain", any number of times; only the supervisor escalates."""


class Signals:
    """Made before anything else is imported."""

    def __init__(self) -> None:
        self.came = False
        for number in STOP:
            signal.signal(number, self._note)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _note(self, *_: object) -> None:
        self.came = True
