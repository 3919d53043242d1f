"""One granted job in this process, and the book of all of them.

`Holdings` is what the worker's own voice says it holds: every grant whose settle the store has not confirmed. Only the
loop changes it; the keeper's thread copies it. Two orders matter. A grant is put in the book (and on the board) before
its claim counts as answered, so that a beat which says "answered" also says "held". And it leaves the book only when
the store has confirmed how it ended, so that finished work is never taken for lost and run again.

A job may be in the book twice: a run that lost its lease and whose thread cannot be stopped, and the next grant of the
same job. The token tells them apart.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Protocol

from stillhere.domain.errors import StopReason
from stillhere.domain.job import Grant
from stillhere.domain.policy import retention_ms
from stillhere.ports.backend import Held
from stillhere.worker.board import Board
from stillhere.worker.clock import boottime_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stillhere.domain.task import TaskDef


class Host(Protocol):
    """What a run asks of the worker it is in; the handler's `Job` passes its wishes on."""

    def in_doubt(self) -> bool:
        """Whether the lease may be over."""

    def note_progress(self, run: Run, done: float, total: float | None, note: str) -> None:
        """Keep the newest progress for the next flush."""

    async def checkpoint(self, run: Run, value: object) -> None:
        """Store a checkpoint from the loop."""

    def checkpoint_sync(self, run: Run, value: object) -> None:
        """Store a checkpoint from a thread."""

    def log(self, run: Run, line: str) -> None:
        """Write a line of the handler's."""


class Run:
    """A grant, and how far this process is with it."""

    __slots__ = (
        "_board", "_told", "checkpoint", "deadline_ns", "ended", "grant", "handle", "host", "long", "moved_ns",
        "numbers", "passed", "progress", "progress_at", "progress_sent", "slot", "stall_ns", "started", "started_at",
        "stopped_ns", "stopping", "task", "thread",
    )  # fmt: skip

    def __init__(self, grant: Grant, task: TaskDef, host: Host, slot: int, board: Board | None = None) -> None:
        self._board = board
        """None: there is nobody to see it (a handler's unit test)."""
        self.grant = grant
        self.task = task
        self.host = host
        self.slot = slot
        """Its slot on the board."""
        self.checkpoint = grant.checkpoint
        self.stopping: StopReason | None = None
        self.started = False
        self.ended = False
        self.passed = False
        """It has run for longer than `long_after`."""
        self.long = False
        """It sits in a long place."""
        self.started_at = 0.0
        self.deadline_ns = self.stall_ns = 0
        """By when it has to be over, and how long it may say nothing; 0: no limit."""
        self.moved_ns = 0
        """Its start, or its last progress or checkpoint."""
        self.stopped_ns = 0
        """When it was told to stop."""
        self._told = False
        self.thread = 0
        """Ident of the thread that runs it, while it does."""
        self.handle: asyncio.Task[None] | None = None
        self.numbers = itertools.count(1)
        """Checkpoints and progress under one token are numbered, so that a late request changes nothing."""
        self.progress: tuple[int, str] = (0, "")
        """The newest word, with its number; replaced whole, by the handler's thread."""
        self.progress_sent = 0
        """The number of the newest word that was sent; the loop's."""
        self.progress_at = 0.0

    def stop(self, reason: StopReason) -> None:
        """Tell it to end; the first reason stays. Called on the loop; a thread sees the flag."""
        if self.ended or self._told:
            return
        self._told = True
        if self.stopping is None:
            self.flag(reason)
        if self.handle is not None:
            self.handle.cancel()

    def lose(self) -> bool:
        """Note that its lease is lost, whatever it was told before: nothing it says counts; False: that is known."""
        if self.stopping == "lease_lost" and (self.ended or self._told):
            return False
        if self.ended:
            self.stopping = "lease_lost"
        elif self.stopping != "lease_lost":
            self.flag("lease_lost")
        self._told = False
        return True

    def flag(self, reason: StopReason) -> None:
        """Note why it has to end, here and on the board, where the supervisor sees to it; from any thread.

        By itself it is not told yet, as while its loop is blocked: a thread sees it, and the supervisor.
        """
        self.stopped_ns = boottime_ns()
        self.stopping = reason
        if self._board is not None:
            self._board.stop(self.slot, self.stopped_ns, reason)

    def moved(self) -> None:
        """It has said something: a time without a word begins anew. From any thread."""
        self.moved_ns = boottime_ns()
        if self.stall_ns and self._board is not None:
            self._board.move(self.slot, self.moved_ns)

    def late(self, now_ns: int) -> StopReason | None:
        """Which limit it has passed, if any."""
        if self.deadline_ns and now_ns >= self.deadline_ns:
            return "timeout"
        if self.stall_ns and now_ns - self.moved_ns >= self.stall_ns:
            return "stalled"
        return None


class Holdings:
    """All runs of this worker, by queue, job and token."""

    def __init__(self, queues: Sequence[str], board: Board) -> None:
        self.queues = list(queues)
        self._index = {queue: index for index, queue in enumerate(queues)}
        self._board = board
        self._runs: dict[tuple[str, str, int], Run] = {}
        self._free = list(range(board.slots))

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def room(self) -> int:
        """How many more grants the board can show."""
        return len(self._free)

    def add(self, grant: Grant, task: TaskDef, host: Host) -> Run:
        """Take in a grant: on the board and in the book."""
        slot = self._free.pop()
        self._board.fill(
            slot,
            queue=self._index[grant.queue],
            job=grant.id,
            token=grant.token,
            task=grant.task,
            retention_ms=retention_ms(grant, task.options),
        )
        run = Run(grant, task, host, slot, self._board)
        self._runs[_key(run)] = run
        return run

    def drop(self, run: Run) -> None:
        """Take out a run whose end is confirmed, or that is no longer ours; once is enough."""
        if self._runs.pop(_key(run), None) is not None:
            self._board.free(run.slot)
            self._free.append(run.slot)

    def find(self, queue: str, job: str, token: int | None = None) -> Run | None:
        """The run of a job under this token; without a token the one that was granted last."""
        if token is not None:
            return self._runs.get((queue, job, token))
        runs = [run for run in self.all() if (run.grant.queue, run.grant.id) == (queue, job)]
        return max(runs, key=lambda run: run.grant.token, default=None)

    def all(self) -> list[Run]:
        """A copy of all runs; safe from any thread."""
        return list(self._runs.values())

    def active(self) -> list[Run]:
        """Runs that have not ended."""
        return [run for run in self.all() if not run.ended]

    def pairs(self, queue: str) -> list[Held]:
        """What a beat says is held; safe from any thread."""
        return [Held(run.grant.id, run.grant.token) for run in self.all() if run.grant.queue == queue]


def _key(run: Run) -> tuple[str, str, int]:
    return (run.grant.queue, run.grant.id, run.grant.token)
