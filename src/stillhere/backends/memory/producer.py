"""The verbs of a producer: add, cancel, retry, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stillhere.backends.memory.model import ETA, Claimant, Job
from stillhere.backends.memory.moves import SHORT_DELAY_MS
from stillhere.domain.job import JobRecord, NewRecord
from stillhere.domain.states import LIVE, Event, State
from stillhere.ports.backend import Cancel, Cancelled, Enqueue, Enqueued, Hint, Look, Retried, Retry

if TYPE_CHECKING:
    from stillhere.backends.memory.moves import Turn


def enqueue(turn: Turn, verb: Enqueue) -> list[Enqueued]:
    """Add jobs. The id decides whether a job is new, so a repeat after a lost reply adds nothing."""
    turn.queue.is_announced = True
    return [_insert(turn, new) for new in verb.jobs]


def _insert(turn: Turn, new: NewRecord) -> Enqueued:
    queue = turn.queue
    known = not queue.live_workers() or queue.known[new.task] > 0
    there = queue.jobs.get(new.id)
    if there is not None:
        return Enqueued(id=new.id, created=False, state=_state(there), conflict="id", known=known)
    other = _obstacle(turn, new)
    if other is not None:
        return Enqueued(id=other.id, created=False, state=_state(other), conflict="unique", known=known)
    job = _made(turn, new)
    if new.unique is not None:
        queue.unique.put((new.task, new.unique), Claimant(new.id, job.unique_until or 0))
    queue.jobs.put(new.id, job)
    if new.due is not None and new.due > turn.now:
        job.move(Event.SCHEDULE)
        queue.settle_in(job, ETA, new.due)
        turn.woken += new.due - turn.now <= SHORT_DELAY_MS
    elif new.delay_ms:
        turn.schedule(job, new.delay_ms, Event.SCHEDULE)
    else:
        turn.put(job, "m", Event.ENQUEUE)
    return Enqueued(id=new.id, created=True, state=_state(job), known=known)


def _made(turn: Turn, new: NewRecord) -> Job:
    return Job(
        id=new.id,
        task=new.task,
        args=new.args,
        priority=new.priority,
        created=turn.now,
        due=new.due,
        max_attempts=new.max_attempts,
        max_losses=new.max_losses,
        timeout_ms=new.timeout_ms,
        stall_ms=new.stall_ms,
        retention_ms=new.retention_ms,
        unique=new.unique,
        unique_until=None if new.unique_for_ms is None else turn.now + new.unique_for_ms,
        headers=dict(new.headers),
        lane=new.lane,
    )


def _obstacle(turn: Turn, new: NewRecord) -> Job | None:
    """Who stands in the way of its unique key, after making way where that was asked for."""
    if new.unique is None:
        return None
    held = turn.queue.unique.get((new.task, new.unique))
    other = turn.queue.jobs.get(held.job) if held else None
    if held is None or other is None:
        return None
    if new.on_conflict == "replace" and other.state in (State.READY, State.SCHEDULED):
        turn.call_off(other, "replaced")
        return None
    return other if other.state in LIVE or held.until > turn.now else None


def _state(job: Job) -> State:
    return job.state or State.READY


def look(turn: Turn, verb: Look) -> JobRecord | None:
    """Read one job."""
    job = turn.queue.jobs.get(verb.job)
    return None if job is None else job.record(turn.queue.name)


def cancel(turn: Turn, verb: Cancel) -> Cancelled:
    """Cancel a job: at once when it waits; when it runs, flag it, and whichever way the run ends it is cancelled."""
    job = turn.queue.jobs.get(verb.job)
    if job is None:
        return Cancelled(changed=False)
    if job.state not in LIVE or job.cancel is not None:
        return Cancelled(changed=False, state=job.state)
    reason = verb.reason or "cancelled"
    if job.state is not State.RUNNING:
        turn.call_off(job, reason, verb.retention_ms)
        return Cancelled(changed=True, state=job.state)
    job.cancel = reason
    job.retention_ms = job.retention_ms if verb.retention_ms is None else verb.retention_ms
    hint = Hint(kind="cancel", queue=turn.queue.name, job=job.id, token=job.token)
    turn.queue.tell_cancel(hint, job.worker or "")
    return Cancelled(changed=True, state=job.state)


def retry(turn: Turn, verb: Retry) -> Retried:
    """Make a job that waits for its time ready now, or a dead letter with fresh budgets.

    A dead letter stays one if its unique key belongs to another job by now.
    """
    job = turn.queue.jobs.get(verb.job)
    before = None if job is None else job.state
    if job is None or before not in (State.SCHEDULED, State.DEAD):
        return Retried(changed=False, state=before)
    if before is State.DEAD and not _revive(turn, job):
        return Retried(changed=False, state=before)
    turn.put(job, "m", Event.REVIVE)
    return Retried(changed=True, state=before)


def _revive(turn: Turn, job: Job) -> bool:
    if job.unique is not None:
        key = (job.task, job.unique)
        held = turn.queue.unique.get(key)
        other = turn.queue.jobs.get(held.job) if held else None
        taken = held is not None and (held.until > turn.now or (other is not None and other.state in LIVE))
        if held is not None and held.job != job.id and taken:
            return False
        turn.queue.unique.put(key, Claimant(job.id, job.unique_until or 0))
    turn.queue.jobs.persist(job.id)  # or it would vanish while it runs
    if job.worker is not None:
        turn.note_run(job, "dead", job.ended or turn.now, exit_of(job))
    job.failures = job.losses = job.shared = job.beside = job.vanished = 0
    job.reason = job.ended = job.worker = None
    return True


class _Exit(msgspec.Struct):
    """What is wanted of an error."""

    exit: str = ""


def exit_of(job: Job) -> str | None:
    """Why the worker of a dead letter died, if that made it one."""
    return msgspec.json.decode(job.error or "{}", type=_Exit).exit or None if job.reason == "lost" else None
