"""The claim: the only verb that grants.

Claims are numbered. The same number again gives the same grants, a lower one is a late copy and gets nothing, and
number n says that n - 1 has been answered; so at most one claim of a worker is unanswered.

On its way it brings along what is due and what was parked for a worker like this one: at most 100 each, so that a call
stays short whatever has gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillhere.backends.memory.model import ETA, LANES, SOON, SUSPECTS, UPWARD, Job, Worker
from stillhere.domain.job import Grant
from stillhere.domain.states import Event
from stillhere.ports.backend import Claim, Claimed

if TYPE_CHECKING:
    from stillhere.backends.memory.moves import Turn

AT_ONCE = 100
MOST_SLOTS = 1_000
FROM_BELOW_EVERY = 8
"""One claim in so many begins with the least priority, which therefore never starves."""


def claim(turn: Turn, verb: Claim) -> Claimed:
    """Take up to `slots` ready jobs."""
    me = turn.queue.workers.get(verb.worker)
    if me is None or me.gone is not None:
        return Claimed(standing="gone")
    if turn.lease >= me.end:
        return Claimed(standing="over")
    if verb.n < me.number:
        return Claimed(standing="old")
    if verb.n == me.number:
        still = [me.holds[name] for name in me.granted if name in me.holds]
        return _answer(turn, [job for job in still if job.claim == verb.n])
    jobs, more = ([], False) if turn.queue.is_paused else _take(turn, me, verb)
    me.number, me.answered, me.seen = verb.n, max(me.answered, verb.n - 1), turn.now
    me.granted, me.granted_at = [job.id for job in jobs], turn.lease
    me.unseen_until = turn.lease + me.lease_ms if jobs else None
    turn.woken = int(more)  # what became ready on the way is in this worker's hands, unless there is more than it takes
    return _answer(turn, jobs, more=more)


def _answer(turn: Turn, jobs: list[Job], *, more: bool = False) -> Claimed:
    grants = [_grant_of(turn, job) for job in jobs]
    return Claimed(standing="ok", jobs=grants, more=more, next_due_ms=_next_due(turn), paused=turn.queue.is_paused)


def _take(turn: Turn, me: Worker, verb: Claim) -> tuple[list[Job], bool]:
    slots = min(verb.slots, MOST_SLOTS)
    _promote(turn, SOON, turn.steady)
    _promote(turn, ETA, turn.now)
    _unpark(turn, me)
    jobs: list[Job] = []
    if verb.lanes != "pool":
        jobs = _deal(turn, me, verb.n, SUSPECTS, min(1, slots))
    more = False
    if verb.lanes != "solo" and not jobs:
        jobs = _deal(turn, me, verb.n, LANES if verb.n % FROM_BELOW_EVERY else UPWARD, slots)
        more = 0 < slots == len(jobs) and turn.queue.waiting(LANES) > 0
    return jobs, more


def _promote(turn: Turn, room: str, clock: int) -> None:
    """Make ready what is due, behind what is ready already."""
    for name in turn.queue.places[room].due(clock, AT_ONCE):
        turn.put(_job(turn, name), "m", Event.DUE)


def _unpark(turn: Turn, me: Worker) -> None:
    """Bring back, in front, what waited for the likes of this worker."""
    left = AT_ONCE
    for need in turn.queue.parks():
        if need in me.can:
            for name in turn.queue.places[f"park:{need}"].first(left):
                job = _job(turn, name)
                turn.queue.take_out(job)
                job.reason, job.ready_at = None, turn.steady
                turn.queue.settle_in(job, job.lane("r"))
                left -= 1


def _deal(turn: Turn, me: Worker, number: int, lanes: tuple[str, ...], slots: int) -> list[Job]:
    """Fill the slots from these lanes, in order. What this worker cannot run takes no slot; its number is bounded."""
    jobs: list[Job] = []
    patience = AT_ONCE
    for lane in lanes:
        while len(jobs) < slots and patience > 0:
            wanted = slots - len(jobs)
            met = [_job(turn, name) for name in turn.queue.places[lane].first(wanted)]
            for job in met:
                lacks = [need for need in job.needs() if need not in me.can]
                if lacks:
                    _park(turn, job, lacks[0])
                    patience -= 1
                else:
                    _grant(turn, me, number, job)
                    jobs.append(job)
            if len(met) < wanted:
                break
    return jobs


def _park(turn: Turn, job: Job, need: str) -> None:
    """Set aside what this worker cannot run, until one comes that can: nobody meets it again in between."""
    turn.queue.take_out(job)
    job.reason = "newer_record" if need.startswith("v:") else "unknown_task"
    turn.queue.settle_in(job, f"park:{need}", turn.steady)


def _grant(turn: Turn, me: Worker, number: int, job: Job) -> None:
    turn.queue.take_out(job)
    job.move(Event.GRANT)
    job.token = max(job.token + 1, turn.micros)
    job.worker, job.started, job.claim, job.reason = me.id, turn.now, number, None
    me.holds[job.id] = job


def _job(turn: Turn, name: str) -> Job:
    job = turn.queue.jobs.get(name)
    if job is None:
        raise AssertionError(f"a place names {name}, which is no job")
    return job


def _next_due(turn: Turn) -> int | None:
    rooms = [(SOON, turn.steady), (ETA, turn.now)]
    waits = [lowest - clock for room, clock in rooms if (lowest := turn.queue.places[room].lowest) is not None]
    return max(0, min(waits)) if waits else None


def _grant_of(turn: Turn, job: Job) -> Grant:
    return Grant(
        id=job.id,
        queue=turn.queue.name,
        token=job.token,
        task=job.task,
        args=job.args or "{}",
        v=job.v,
        priority=job.priority,
        created=job.created,
        failures=job.failures,
        losses=job.losses,
        interruptions=job.interruptions,
        max_attempts=job.max_attempts,
        retention_ms=job.retention_ms,
        checkpoint=job.checkpoint,
        headers=dict(job.headers),
        suspect=job.place in SUSPECTS,
    )
