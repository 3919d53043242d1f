"""The moves that verbs share: one verb's turn in a queue, what time it is there, and how jobs change places.

Every verb gets a `Turn` and is done before the next one begins, so between two lines nobody else looks. A verb that
only reads gets the time it would be, and moves no clock.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import msgspec

from stillhere.backends.memory.model import DEAD, DONE, MOST_WAKES, SOON
from stillhere.domain.job import DEAD_RETENTION_MS, DEFAULT_RETENTION_MS, KNOWN_ID_MS
from stillhere.domain.states import Event, State

if TYPE_CHECKING:
    from stillhere.backends.memory.model import Job, Queue, Worker

MOST_RUNS = 50
SHORT_DELAY_MS = 1_000
"""Idle workers sleep up to so long: whoever waits is told when something falls due sooner."""


class Run(msgspec.Struct, omit_defaults=True):
    """A run that was not the job's last: one line of its record."""

    worker: str | None
    token: int
    start: int
    end: int
    how: str
    exit: str | None = None
    """Why its worker died, if that ended it."""


class Turn:
    """One verb's turn in a queue."""

    def __init__(self, queue: Queue, micros: int, *, reads: bool) -> None:
        self.queue = queue
        self.micros = micros
        self.now = micros // 1_000
        clock = copy.copy(queue.clock) if reads else queue.clock
        self.lease = clock.tick(self.now)
        self.steady = clock.steady
        self.woken = 0
        """How many jobs became ready."""
        queue.forget()

    def wake(self) -> None:
        """Leave as many hints as jobs became ready; they are few, however long nobody listens."""
        self.queue.wakes = min(MOST_WAKES, self.queue.wakes + self.woken)

    # ------------------------------------------------------------------------------------------------ into a place

    def put(self, job: Job, side: str, event: Event) -> None:
        """Make it ready."""
        self.queue.take_out(job)
        job.move(event)
        job.ready_at = self.steady
        self.queue.settle_in(job, self.queue.route(job, side, self.steady))
        self.woken += 1

    def schedule(self, job: Job, delay_ms: int, event: Event) -> None:
        """Make it wait for a time on the clock that never goes back."""
        self.queue.take_out(job)
        job.move(event)
        job.due = self.now + delay_ms
        self.queue.settle_in(job, SOON, self.steady + delay_ms)
        if delay_ms <= SHORT_DELAY_MS:
            self.woken += 1

    def finish(self, job: Job, event: Event, reason: str | None, keep_ms: int) -> None:
        """End it for good. Its unique key goes with it, unless it was asked to stay or belongs to another by now."""
        self.queue.take_out(job)
        job.move(event)
        job.ended = self.now
        job.reason = reason or job.reason
        job.claim, job.cancel = 0, None
        if keep_ms == 0:
            job.args = job.result = job.checkpoint = job.progress = None
            job.headers = {}
        keep_ms = max(keep_ms, KNOWN_ID_MS, self._release_key(job))
        self.queue.jobs.expire(job.id, self.queue.own_clock() + keep_ms)
        self.queue.settle_in(job, DEAD if job.state is State.DEAD else DONE, self.now)

    def _release_key(self, job: Job) -> int:
        """Give up its unique key; returns for how long it stays all the same."""
        if job.unique is None:
            return 0
        key = (job.task, job.unique)
        held = self.queue.unique.get(key)
        if held is None or held.job != job.id:
            return 0
        left = max(0, (job.unique_until or 0) - self.now)
        if left:
            self.queue.unique.expire(key, self.queue.own_clock() + left)
        else:
            self.queue.unique.pop(key)
        return left

    def bury(self, job: Job, event: Event, reason: str | None) -> None:
        """Make it a dead letter."""
        self.finish(job, event, reason, DEAD_RETENTION_MS)

    def call_off(self, job: Job, reason: str, keep_ms: int | None = None) -> None:
        """Cancel a job that was to go on; it is kept as long as the caller, else its record, else the default says."""
        said = [ms for ms in (keep_ms, job.retention_ms) if ms is not None]
        self.finish(job, Event.CANCEL, reason, said[0] if said else DEFAULT_RETENTION_MS)

    # ------------------------------------------------------------------------------- a run is over, and the job is not

    def note_run(self, job: Job, how: str, end: int, exit: str | None = None) -> None:
        """Keep a line of the run that ends; the newest fifty stay."""
        run = Run(job.worker, job.token, end if job.started is None else job.started, end, how, exit)
        job.runs = [*job.runs, msgspec.json.encode(run).decode()][-MOST_RUNS:]

    def give_back(self, job: Job, side: str, event: Event, how: str | None = None, *, exit: str | None = None) -> bool:
        """Make it ready again; False: it was to be cancelled, and now is. Without `how` nobody had seen the grant."""
        if job.cancel is not None:
            self.call_off(job, job.cancel)
            return False
        if how is not None:
            self.note_run(job, how, self.now, exit)
        self.put(job, side, event)
        job.worker, job.claim = None, 0
        return True

    def take_back(self, worker: Worker) -> list[str]:
        """Take back what a worker was granted under a number that nobody has answered: no handler can have seen it."""
        taken = []
        for name in worker.granted:
            job = worker.holds.get(name)
            if job is not None and job.claim > worker.answered and self.give_back(job, "r", Event.LOSE):
                taken.append(name)
        return taken
