"""Reading a queue and administering it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from stillhere.backends.memory.model import (
    ALL_LANES,
    DEAD,
    DONE,
    ETA,
    LANES,
    LONG,
    MOST_WAKES,
    SOLO,
    SOON,
    SUSPECTS,
    Job,
    Question,
    Queue,
)
from stillhere.backends.memory.supervisor import drop_old_questions
from stillhere.domain.states import State
from stillhere.ports.inspector import (
    Answered,
    Ask,
    Jobs,
    Page,
    Pause,
    Purge,
    QueueStatus,
    Status,
    WorkerRecord,
    Workers,
)

if TYPE_CHECKING:
    from stillhere.backends.memory.moves import Turn


MOST_QUESTIONS = 100
"""Without an answer, a queue; one more makes it forget the oldest."""


class Mark(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Where a listing goes on: a kind of place, a number in it, a job."""

    rank: int
    score: int
    job: str


def workers(turn: Turn, verb: Workers) -> list[WorkerRecord]:
    """The registered workers, those whose lease ends first in front."""
    return [
        WorkerRecord(
            id=me.id,
            queue=turn.queue.name,
            lease_ms=me.lease_ms,
            left_ms=me.end - turn.lease,
            seen=me.seen,
            answered=me.answered,
            holds=len(me.holds),
            gone=me.gone,
            info=dict(me.info),
            tasks=sorted(need.removeprefix("task:") for need in me.can if need.startswith("task:")),
        )
        for me in sorted(turn.queue.workers.values(), key=lambda me: (me.end, me.id))[: verb.limit]
    ]


def status(turn: Turn, verb: Status) -> QueueStatus:
    """One queue in figures."""
    del verb
    queue = turn.queue
    suspects, long, solo = queue.waiting(SUSPECTS), queue.waiting(LONG), queue.waiting(SOLO)
    parked = sum(len(queue.places[f"park:{need}"]) for need in queue.parks())
    heads = [name for lane in LANES for name in queue.places[lane].first(1)]
    arrivals = [job.ready_at for name in heads if (job := queue.jobs.get(name)) is not None]
    return QueueStatus(
        queue=queue.name,
        ready=queue.waiting(LANES) + long + solo + suspects + parked,
        running=sum(len(me.holds) for me in queue.workers.values()),
        scheduled=len(queue.places[SOON]) + len(queue.places[ETA]),
        dead=len(queue.places[DEAD]),
        suspects=suspects,
        long=long,
        solo=solo,
        long_tasks=queue.long_tasks(turn.steady),
        parked=parked,
        parked_tasks=[need.removeprefix("task:") for need in queue.parks() if need.startswith("task:")],
        workers=len(queue.live_workers()),
        paused=queue.is_paused,
        oldest_ready_ms=max(0, turn.steady - min(arrivals)) if arrivals else None,
        settled=queue.settled,
    )


def jobs(turn: Turn, verb: Jobs) -> Page:
    """List jobs, place by place: what runs, what is ready, what waits for a time, dead letters, what ended."""
    queue = turn.queue
    if verb.id_tail and verb.after is None:  # a whole id needs no search
        named = queue.jobs.get(verb.id_tail)
        if named is not None:
            return Page(jobs=[named.record(queue.name)] if _is_wanted(turn, verb, named) else [])
    begin = None if verb.after is None else msgspec.json.decode(verb.after, type=Mark)
    marks = sorted(mark for mark in _marks(queue) if begin is None or mark > begin)
    found: list[Job] = []
    for mark in marks:
        job = queue.jobs.get(mark.job)
        if job is not None and _is_wanted(turn, verb, job):
            found.append(job)
        if len(found) == verb.limit:
            return Page(jobs=[job.record(queue.name) for job in found], after=msgspec.json.encode(mark).decode())
    return Page(jobs=[job.record(queue.name) for job in found])


def _marks(queue: Queue) -> Iterator[Mark]:
    """Every job with its place in a listing; of what has ended the newest first."""
    for me in queue.workers.values():
        for job in me.holds:
            yield Mark(0, 0, job)
    parks = [f"park:{need}" for need in queue.parks()]
    for rank, place in enumerate((*ALL_LANES, *parks, SOON, ETA), 1):
        for score, job in queue.places[place].rows():
            yield Mark(rank, score, job)
    for rank, place in ((1_000_001, DEAD), (1_000_002, DONE)):
        for score, job in queue.places[place].rows():
            yield Mark(rank, -score, job)


def _is_wanted(turn: Turn, verb: Jobs, job: Job) -> bool:
    return (
        verb.state in (None, job.state)
        and verb.task in (None, job.task)
        and (verb.worker is None or (job.worker == verb.worker and job.state is State.RUNNING))
        and (verb.id_tail is None or job.id.endswith(verb.id_tail))
        and (verb.error_text is None or verb.error_text in (job.error or ""))
        and (verb.older_than_ms is None or turn.now - job.created >= verb.older_than_ms)
    )


def ask(turn: Turn, verb: Ask) -> bool:
    """Leave a question for the supervisor of a running job. One under an id that was answered is a late copy."""
    queue = turn.queue
    job = queue.jobs.get(verb.job)
    if job is None or job.state is not State.RUNNING:
        return False
    drop_old_questions(turn)
    if verb.id not in queue.asks and queue.answers.get(verb.id) is None:
        if len(queue.asks) >= MOST_QUESTIONS:
            del queue.asks[min((old.at, name) for name, old in queue.asks.items())[1]]
        queue.asks[verb.id] = Question(turn.steady, job.worker or "", job.id)
    return True


def answered(turn: Turn, verb: Answered) -> str | None:
    """The answer to a question, as long as it is kept."""
    return turn.queue.answers.get(verb.id)


def pause(turn: Turn, verb: Pause) -> bool:
    """Stop or resume the grants; what runs goes on."""
    changed = turn.queue.is_paused is not verb.paused
    turn.queue.is_paused = verb.paused
    if changed and not verb.paused:
        turn.woken = MOST_WAKES
    return changed


def purge(turn: Turn, verb: Purge) -> bool:
    """Remove a dead letter for good."""
    queue = turn.queue
    job = queue.jobs.get(verb.job)
    if job is None or job.state is not State.DEAD:
        return False
    if job.unique is not None:
        held = queue.unique.get((job.task, job.unique))
        if held is not None and held.job == job.id:
            queue.unique.pop((job.task, job.unique))
    queue.take_out(job)
    queue.jobs.pop(job.id)
    return True
