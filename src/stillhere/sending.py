"""Sending jobs: the script of one `Enqueue`, of many, and what to say when the store did not take them.

A job gets its id where it is prepared, so a call whose reply was lost can be repeated: the store knows the id and makes
no second job. The errors say whether the job surely was not stored or may have been.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from stillhere.domain.errors import ConfigurationError, DuplicateJob, StoreFull, StoreUnavailable
from stillhere.handle import Handle, NewJob, SyncHandle
from stillhere.ports.backend import BATCH, Enqueue, Enqueued
from stillhere.waiting import warn_unknown_task

if TYPE_CHECKING:
    from stillhere.link import Link, Script

R = TypeVar("R")

_BATCH_BYTES = 4_000_000
_IN_ONE_GO = 8
"""Batches in one round trip."""

_warned: set[tuple[str, str]] = set()
_warned_lock = threading.Lock()


async def send(job: NewJob[R]) -> Handle[R]:
    """Store one job from asyncio."""
    try:
        reply = await job.link.run(_enqueue_one(job))
    except (StoreUnavailable, StoreFull) as error:
        raise _worded(error, [job]) from error
    return Handle(job.link, reply.id, queue=job.record.queue, task=job.task, created=reply.created)


def send_sync(job: NewJob[R]) -> SyncHandle[R]:
    """Store one job, blocking."""
    try:
        reply = job.link.run_sync(_enqueue_one(job))
    except (StoreUnavailable, StoreFull) as error:
        raise _worded(error, [job]) from error
    return SyncHandle(job.link, reply.id, queue=job.record.queue, task=job.task, created=reply.created)


async def send_many(link: Link, jobs: list[NewJob[Any]]) -> list[Handle[Any]]:
    """Store jobs from asyncio, in as few round trips as their size allows; each batch is stored whole or not at all."""
    try:
        replies = await link.run(_enqueue_many(jobs))
    except (StoreUnavailable, StoreFull) as error:
        raise _worded(error, jobs) from error
    return [
        Handle(link, reply.id, queue=job.record.queue, task=job.task, created=reply.created)
        for job, reply in zip(jobs, replies, strict=True)
    ]


def send_many_sync(link: Link, jobs: list[NewJob[Any]]) -> list[SyncHandle[Any]]:
    """Store jobs, blocking; as `send_many`."""
    try:
        replies = link.run_sync(_enqueue_many(jobs))
    except (StoreUnavailable, StoreFull) as error:
        raise _worded(error, jobs) from error
    return [
        SyncHandle(link, reply.id, queue=job.record.queue, task=job.task, created=reply.created)
        for job, reply in zip(jobs, replies, strict=True)
    ]


def own_jobs(link: Link, jobs: Iterable[NewJob[Any]]) -> list[NewJob[Any]]:
    """The jobs as a list, each prepared by a task of this very app."""
    taken = list(jobs)
    for job in taken:
        if not isinstance(job, NewJob):
            raise ConfigurationError(f"enqueue_many takes prepared jobs: task.prepare(...), not {job!r}.")
        if job.link is not link:
            raise ConfigurationError(f"{job!r} was prepared by a task of another app.")
    return taken


def _enqueue_one(job: NewJob[Any]) -> Script[Enqueued]:
    replies: list[Enqueued] = yield Enqueue(queue=job.record.queue, jobs=[job.record])
    yield from _after(job, replies[0])
    return replies[0]


def _enqueue_many(jobs: list[NewJob[Any]]) -> Script[list[Enqueued]]:
    """All replies in the order of the jobs, whatever queues they went to."""
    replies: dict[int, Enqueued] = {}
    batches = list(_batches(jobs))
    for start in range(0, len(batches), _IN_ONE_GO):
        some = batches[start : start + _IN_ONE_GO]
        answers: list[list[Enqueued]] = yield [
            Enqueue(queue=jobs[batch[0]].record.queue, jobs=[jobs[index].record for index in batch]) for batch in some
        ]
        for batch, answer in zip(some, answers, strict=True):
            replies.update(zip(batch, answer, strict=True))
    for index, job in enumerate(jobs):
        yield from _after(job, replies[index])
    return [replies[index] for index in range(len(jobs))]


def _batches(jobs: list[NewJob[Any]]) -> Iterator[list[int]]:
    """Positions of jobs of one queue that go together."""
    by_queue: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        by_queue.setdefault(job.record.queue, []).append(index)
    for positions in by_queue.values():
        batch: list[int] = []
        size = 0
        for index in positions:
            bytes_more = len(jobs[index].record.args)
            if batch and (len(batch) == BATCH or size + bytes_more > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(index)
            size += bytes_more
        yield batch


def _after(job: NewJob[Any], reply: Enqueued) -> Script[None]:
    """What the reply means for the caller: a refusal that was asked for, or a warning."""
    record = job.record
    if not reply.created and record.on_conflict == "raise":
        same = f"the unique key {record.unique!r}" if reply.conflict == "unique" else "this id"
        text = f"{record.task}: job {reply.id} with {same} is {reply.state} already. Nothing was enqueued."
        raise DuplicateJob(text, reply.id)
    if reply.known:
        return
    with _warned_lock:
        first = (record.task, record.queue) not in _warned
        _warned.add((record.task, record.queue))
    if first:
        yield from warn_unknown_task(reply.id, record.task, record.queue)


def _worded(error: StoreUnavailable | StoreFull, jobs: list[NewJob[Any]]) -> StoreUnavailable | StoreFull:
    """The error, and what became of the jobs."""
    one = jobs[0].id if len(jobs) == 1 else ""
    if isinstance(error, StoreFull):
        what = (
            "Nothing was enqueued." if one else "Some of the jobs were not enqueued; the same list may be sent again."
        )
        return StoreFull(f"{error} {what}")
    if not error.sent and one:
        return StoreUnavailable(f"{error} Nothing was enqueued.", sent=False)
    what = f"Job {one} may" if one else "Some of the jobs may"
    return StoreUnavailable(f"{error} {what} have been enqueued all the same; the same id again makes no second job.")
