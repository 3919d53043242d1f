"""A program with a worker in it, seen from its keeper: by the board, and by what the kernel says of the process.

The keeper is a child of the host and not its parent, so it gets no exit status: it sees *that* the host is dead, never
why. A pidfd says so at once (Linux); elsewhere the parent's process id is looked at, four times a second. The number
alone would not do: a dead host's number may be another process's by the time that somebody looks. So the pidfd is
opened first, and then it is checked that the parent is still the one that was meant.

Without /proc (macOS) a stopped host is not told from a running one, so its lease is kept while it is stopped.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable

from stillhere.domain.attribution import Seen
from stillhere.domain.job import Outcome
from stillhere.worker import processes
from stillhere.worker.board import WORKING, Board
from stillhere.worker.supervisor.vouched import LOOK_CLOSER_S, SILENT_S, seen_on, silence


class Host:
    """What the beater and the undertaker read (`Vouched`), and whether the process is dead."""

    def __init__(
        self,
        pid: int,
        board: Board,
        queues: list[str],
        on_gone: Callable[[str], None],
        on_ask: Callable[[str, str], None],
    ) -> None:
        """`on_gone` is told when the store has closed the worker id, `on_ask` of questions about a job."""
        self.pid, self.board, self.queues = pid, board, queues
        self._on_gone, self._on_ask = on_gone, on_ask
        self.silent = False
        """Its loop has not ticked for a second, when it was looked at last."""

    @property
    def worker(self) -> str:
        """The id under which it is registered now."""
        return self.board.worker

    @property
    def vouched(self) -> bool:
        """Whether one may speak for it: it is not stopped, not dumping core, and in a working phase."""
        if self.board.phase not in WORKING:
            return False
        return not processes.is_stopped(self.pid) and not processes.is_dumping(self.pid)

    @property
    def is_silent(self) -> bool:
        """Whether its loop is silent at this moment."""
        return silence(self.board) > SILENT_S

    def look(self) -> bool:
        """Look at the loop; True when it has just gone silent."""
        before, self.silent = self.silent, self.is_silent
        return self.silent and not before

    @property
    def is_dumping(self) -> bool:
        """Whether it is writing a core dump: no code of its own runs any more. Asked only when its loop is silent."""
        return silence(self.board) > LOOK_CLOSER_S and processes.is_dumping(self.pid)

    def declared_gone(self) -> None:
        """Its worker id is closed in the store: it must drop everything and register anew."""
        self._on_gone(self.worker)

    def ask(self, question: str, job: str) -> None:
        """Where is the code of this job? The answer comes by the way the host has."""
        self._on_ask(question, job)

    def ends(self) -> dict[str, list[Outcome]]:
        """None: nothing of a host's is ended from outside."""
        return {}

    def seen(self) -> list[Seen]:
        """What its board shows: the jobs it had."""
        return seen_on(self.board, self.queues)


class Pulse:
    """Whether this process's parent lives."""

    def __init__(self, parent: int) -> None:
        """`parent`: the process id that the parent had when it started this process."""
        self._parent = parent
        self.fd = -1
        """Readable when the parent is dead; -1 where there is no such thing."""
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.fd = os.pidfd_open(parent)
        self._lost = os.getppid() != parent
        self._poll = select.poll()
        if self.fd >= 0:
            self._poll.register(self.fd, select.POLLIN)

    @property
    def is_over(self) -> bool:
        """Whether it is dead."""
        if self._lost:
            return True
        if self.fd < 0:
            return os.getppid() != self._parent
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Let go of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
