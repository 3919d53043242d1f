"""What enqueueing gives back: a handle on one job, to wait for it, read it, cancel it, retry it.

`Handle` is for asyncio, `SyncHandle` blocks; what they do is written once, in the scripts of `_Job` (see `link`).
Waiting is polling, since a producer holds no connection open for its jobs: 10 ms after the first look, then slower, at
most a second apart. After five seconds without progress towards a worker one line in the log says why, once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from stillhere.domain.durations import Duration, milliseconds
from stillhere.domain.errors import JobCancelled, JobFailed, JobNotFound, ResultNotKept
from stillhere.domain.info import JobInfo, error_of, info_of
from stillhere.domain.states import FINAL, State
from stillhere.link import Pause
from stillhere.ports.backend import Cancel, Cancelled, Look, Retried, Retry
from stillhere.ports.inspector import Jobs, Page, Purge, Queues
from stillhere.waiting import explain_waiting

if TYPE_CHECKING:
    from stillhere.domain.job import JobRecord, NewRecord
    from stillhere.domain.task import TaskDef
    from stillhere.link import Link, Script

R_co = TypeVar("R_co", covariant=True)

_FIRST_PAUSE_S = 0.01
_SLOWER = 1.3
_LONGEST_PAUSE_S = 0.25
_PATIENT_AFTER_S = 60.0
_PATIENT_PAUSE_S = 1.0
_EXPLAIN_AFTER_S = 5.0


class NewJob(Generic[R_co]):
    """A call that is bound, checked and encoded, and not sent: ``task.prepare(...)``.

    It has its job id already, so sending the same one twice makes one job.
    """

    __slots__ = ("link", "record", "task")

    def __init__(self, record: NewRecord, task: TaskDef | None, link: Link) -> None:
        self.record = record
        self.task = task
        self.link = link

    @property
    def id(self) -> str:
        """The id the job will have."""
        return self.record.id

    def __repr__(self) -> str:
        return f"<NewJob {self.record.id}: {self.record.task}>"


class _Job(Generic[R_co]):
    """One job and the scripts about it."""

    def __init__(
        self, link: Link, job_id: str, *, queue: str | None = None, task: TaskDef | None = None, created: bool = False
    ) -> None:
        self.id = job_id
        self.created = created
        """Whether the call that gave this handle made the job; False: it was there already."""
        self._link = link
        self._queue = queue
        self._task = task
        self._explained = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def _look(self) -> Script[JobRecord]:
        """The record; where nobody told us the queue, the task's own is the likeliest, then all others."""
        likely = self._queue or (None if self._task is None else self._task.options.queue)
        record: JobRecord | None = None
        if likely is not None:
            record = yield Look(queue=likely, job=self.id)
        if record is None and self._queue is None:
            record = yield from self._search(likely)
        if record is None:
            text = f"Job {self.id} is unknown here: never enqueued in this store, or ended and forgotten since."
            raise JobNotFound(text, self.id)
        self._queue = record.queue
        return record

    def _search(self, besides: str | None) -> Script[JobRecord | None]:
        queues: list[str] = yield Queues(queue="")
        others = [queue for queue in queues if queue != besides]
        if not others:
            return None
        records: list[JobRecord | None] = yield [Look(queue=queue, job=self.id) for queue in others]
        return next((record for record in records if record is not None), None)

    def _end(self, timeout: Duration | None, *, for_result: bool) -> Script[JobRecord]:
        """The record once the job has ended."""
        bound = None if timeout is None else milliseconds(timeout, "timeout") / 1_000
        start = time.monotonic()
        pause = _FIRST_PAUSE_S
        while True:
            record = yield from self._look()
            if for_result:
                self._refuse_to_wait_in_vain(record)
            if record.state in FINAL:
                return record
            waited = time.monotonic() - start
            if bound is not None and waited >= bound:
                raise TimeoutError(
                    f"Job {self.id} ({record.task}) is still {record.state} after {timeout}; it goes on."
                )
            if waited > _EXPLAIN_AFTER_S and not self._explained:
                self._explained = True
                yield from explain_waiting(record)
            yield Pause(pause if bound is None else min(pause, bound - waited))
            pause = min(pause * _SLOWER, _PATIENT_PAUSE_S if waited > _PATIENT_AFTER_S else _LONGEST_PAUSE_S)

    def _change(self, before: JobRecord | None) -> Script[JobRecord]:
        """The record as soon as it differs from `before`."""
        while True:
            record = yield from self._look()
            if record != before:
                return record
            yield Pause(_LONGEST_PAUSE_S)

    def _result(self, timeout: Duration | None) -> Script[R_co]:
        record = yield from self._end(timeout, for_result=True)
        return self._result_of(record)

    def _info(self) -> Script[JobInfo]:
        record = yield from self._look()
        return info_of(record)

    def _wait(self, timeout: Duration | None) -> Script[JobInfo]:
        record = yield from self._end(timeout, for_result=False)
        return info_of(record)

    def _cancel(self) -> Script[bool]:
        queue = self._queue or (yield from self._look()).queue
        reply: Cancelled = yield Cancel(queue=queue, job=self.id)
        return reply.changed

    def _retry(self) -> Script[bool]:
        queue = self._queue or (yield from self._look()).queue
        reply: Retried = yield Retry(queue=queue, job=self.id)
        return reply.changed

    def _refuse_to_wait_in_vain(self, record: JobRecord) -> None:
        """Raise at once, whatever the state, when a success will leave no result."""
        kept = record.retention_ms
        if kept is None and self._task is not None:
            kept = self._task.options.retention_ms
        if kept == 0 and record.state not in (State.DEAD, State.CANCELLED):
            raise ResultNotKept(f"{record.task} keeps no result (retention=0).")

    def _result_of(self, record: JobRecord) -> R_co:
        """The value of an ended job, or the exception that says why there is none."""
        error = error_of(record)
        if record.state is State.CANCELLED:
            raise JobCancelled(record.reason or "cancelled", info_of(record))
        if record.state is State.DEAD:
            if error is None:
                raise JobFailed("Dead", record.reason or "", "", info_of(record))
            message = error.message or (f"its worker died: {error.exit}" if error.exit else "")
            raise JobFailed(error.type, message, error.traceback, info_of(record))
        if record.result is None:
            why = None if error is None else error.message
            raise ResultNotKept(why or f"The result of job {self.id} ({record.task}) is not kept any more.")
        return cast("R_co", _decode(self._task, record))

    def _purge(self) -> Script[bool]:
        record = yield from self._look()
        purged: bool = yield Purge(queue=record.queue, job=self.id)
        return purged


def find_dead(queue: str | None, task: str | None, limit: int) -> Script[list[tuple[str, str]]]:
    """Script: the (id, queue) pairs of at most `limit` dead letters, of one queue or of all."""
    queues: list[str] = [queue] if queue is not None else (yield Queues(queue=""))
    found: list[tuple[str, str]] = []
    for name in queues:
        after: str | None = None
        while len(found) < limit:
            page: Page = yield Jobs(
                queue=name, state=State.DEAD, task=task, limit=min(limit - len(found), 100), after=after
            )
            found += [(job.id, name) for job in page.jobs]
            after = page.after
            if after is None:
                break
    return found


class Handle(_Job[R_co]):
    """One job, from asyncio."""

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return what the task returned.

        `timeout` None waits without bound, 0 asks once. Raises `JobFailed`, `JobCancelled`, `ResultNotKept`,
        `JobNotFound`, and ``TimeoutError`` when the time is up first; the job goes on then.
        """
        return await self._link.run(self._result(timeout))

    async def wait(self, timeout: Duration | None = None) -> JobInfo:
        """Wait for the end, however it comes, and return the last look; ``TimeoutError`` when the time is up first."""
        return await self._link.run(self._wait(timeout))

    async def info(self) -> JobInfo:
        """Look at the job now; raises `JobNotFound`."""
        return await self._link.run(self._info())

    async def watch(self) -> AsyncIterator[JobInfo]:
        """Yield a look at the job whenever it has changed, the last one when it has ended."""
        record: JobRecord | None = None
        while record is None or record.state not in FINAL:
            record = await self._link.run(self._change(record))
            yield info_of(record)

    async def cancel(self) -> bool:
        """Cancel the job: at once when it waits, within about a second when it runs. True: it changed something."""
        return await self._link.run(self._cancel())

    async def retry(self) -> bool:
        """Run a job that waits for its next try now, or a dead one with fresh budgets. True: it changed something."""
        return await self._link.run(self._retry())

    async def purge(self) -> bool:
        """Remove the job for good, if it is a dead letter. True: it was, and is gone."""
        return await self._link.run(self._purge())


class SyncHandle(_Job[R_co]):
    """One job, from code that blocks."""

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return what the task returned.

        `timeout` None waits without bound, 0 asks once. Raises `JobFailed`, `JobCancelled`, `ResultNotKept`,
        `JobNotFound`, and ``TimeoutError`` when the time is up first; the job goes on then.
        """
        return self._link.run_sync(self._result(timeout))

    def wait(self, timeout: Duration | None = None) -> JobInfo:
        """Wait for the end, however it comes, and return the last look; ``TimeoutError`` when the time is up first."""
        return self._link.run_sync(self._wait(timeout))

    def info(self) -> JobInfo:
        """Look at the job now; raises `JobNotFound`."""
        return self._link.run_sync(self._info())

    def watch(self) -> Iterator[JobInfo]:
        """Yield a look at the job whenever it has changed, the last one when it has ended."""
        record: JobRecord | None = None
        while record is None or record.state not in FINAL:
            record = self._link.run_sync(self._change(record))
            yield info_of(record)

    def cancel(self) -> bool:
        """Cancel the job: at once when it waits, within about a second when it runs. True: it changed something."""
        return self._link.run_sync(self._cancel())

    def retry(self) -> bool:
        """Run a job that waits for its next try now, or a dead one with fresh budgets. True: it changed something."""
        return self._link.run_sync(self._retry())

    def purge(self) -> bool:
        """Remove the job for good, if it is a dead letter. True: it was, and is gone."""
        return self._link.run_sync(self._purge())


def _decode(task: TaskDef | None, record: JobRecord) -> Any:
    text = record.result or "null"
    if task is not None:
        return task.codec.decode_result(text)
    from stillhere.domain.codec import ValueCodec  # noqa: PLC0415 - a handle is used without the codec as often

    return ValueCodec(Any).decode(text)
