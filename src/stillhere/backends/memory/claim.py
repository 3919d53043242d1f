"""The claim: the only verb that grants.

Claims are numbered. The same number again gives the same grants, a lower one is a late copy and gets nothing, and
number n says that n - 1 has been answered; so at most one claim of a worker is unanswered.

A job belongs in the lane of its task, and what is said of a task changes while its jobs wait. So lanes are not searched
for what should be elsewhere: a claim that meets such a job moves it.

On its way it brings along what is due and what was parked for a worker like this one: at most 100 each, so that a call
stays short whatever has gathered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillhere.backends.memory.model import ETA, LANES, LONG, SOLO, SOON, SUSPECTS, Job, Worker
from stillhere.domain.job import Grant
from stillhere.domain.states import Event
from stillhere.ports.backend import Claim, Claimed

if TYPE_CHECKING:
    from stillhere.backends.memory.moves import Turn

AT_ONCE = 100
MOST_SLOTS = 1_000
FROM_BELOW_EVERY = 8
"""One claim in so many, of those with something to fill, begins with the least priority: it never starves."""


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
    me.holds |= {job.id: job for job in jobs}
    me.granted, me.granted_at = [job.id for job in jobs], turn.lease
    me.unseen_until = turn.lease + me.lease_ms if jobs else None
    return _answer(turn, jobs, more=more)


def _answer(turn: Turn, jobs: list[Job], *, more: bool = False) -> Claimed:
    grants = [_grant_of(turn, job) for job in jobs]
    return Claimed(standing="ok", jobs=grants, more=more, next_due_ms=_next_due(turn), paused=turn.queue.is_paused)


def _take(turn: Turn, me: Worker, verb: Claim) -> tuple[list[Job], bool]:
    known = turn.queue.long_tasks(turn.steady)
    needed = sum(count for task, count in verb.seated.items() if task in known)
    slots, long = min(verb.slots, MOST_SLOTS), max(0, min(verb.long, MOST_SLOTS) - needed)
    me.turns += verb.slots > 0
    me.long_turns += verb.long > 0
    _promote(turn, SOON, turn.steady)
    _promote(turn, ETA, turn.now)
    _unpark(turn, me)
    deal = _Deal(turn, me, verb.n)
    jobs: list[Job] = []
    more = False
    if verb.lanes != "pool":
        jobs = deal.fill(SUSPECTS, min(1, slots))
    if verb.lanes == "solo" and not jobs:
        jobs = deal.fill(SOLO, min(1, slots))
    if verb.lanes != "solo" and not jobs:
        pool, slow, more = _both_lanes(deal, slots, long)
        jobs = pool + slow
    turn.woken = deal.moved + more  # what became ready is in this worker's hands, but for what it does not take
    return jobs, more


def _both_lanes(deal: _Deal, slots: int, long: int) -> tuple[list[Job], list[Job], bool]:
    """Jobs of the pool, long jobs, and whether more places would have been of use."""
    pool = deal.fill(LANES, slots)
    before = deal.moved
    slow = deal.fill(LONG, long)
    if deal.moved > before:  # some that are not long any more went to the pool
        pool += deal.fill(LANES, slots - len(pool))
    return pool, slow, deal.is_short(LANES, slots, pool) or deal.is_short(LONG, long, slow)


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
                turn.queue.settle_in(job, turn.queue.route(job, "r", turn.steady))
                left -= 1


class _Deal:
    """What one claim takes from lanes. What it cannot take costs no slot; its number is bounded."""

    def __init__(self, turn: Turn, me: Worker, number: int) -> None:
        self.turn, self.me, self.number = turn, me, number
        self.patience = AT_ONCE
        self.moved = 0
        """Jobs that were met where they do not belong."""

    def fill(self, lanes: tuple[str, ...], slots: int) -> list[Job]:
        """Fill the slots from these lanes, in order; now and then the other way round."""
        jobs: list[Job] = []
        turns = self.me.long_turns if lanes is LONG else self.me.turns
        upward = lanes is not SUSPECTS and turns % FROM_BELOW_EVERY == 0
        for lane in _upward(lanes) if upward else lanes:
            while len(jobs) < slots and self.patience > 0:
                wanted = slots - len(jobs)
                met = [_job(self.turn, name) for name in self.turn.queue.places[lane].first(wanted)]
                jobs += [job for job in met if self._is_taken(job)]
                if len(met) < wanted:
                    break
        return jobs

    def _is_taken(self, job: Job) -> bool:
        lacks = [need for need in job.needs() if need not in self.me.can]
        side = "r" if job.place.endswith("r") else "m"
        home = self.turn.queue.route(job, side, self.turn.steady)
        if not lacks and home == job.place:
            _grant(self.turn, self.me, self.number, job)
            return True
        self.patience -= 1
        if lacks:
            _park(self.turn, job, lacks[0])
        else:
            self.turn.queue.take_out(job)
            job.ready_at = self.turn.steady
            self.turn.queue.settle_in(job, home)
            self.moved += 1
        return False

    def is_short(self, lanes: tuple[str, ...], slots: int, taken: list[Job]) -> bool:
        """Whether work is left in these lanes for which there was no slot, or no patience."""
        return slots > 0 and (len(taken) == slots or self.patience <= 0) and self.turn.queue.waiting(lanes) > 0


def _upward(lanes: tuple[str, ...]) -> list[str]:
    """The least priority first; within each what was running before."""
    return [lane for at in range(len(lanes) - 2, -1, -2) for lane in lanes[at : at + 2]]


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
        timeout_ms=job.timeout_ms,
        stall_ms=job.stall_ms,
        retention_ms=job.retention_ms,
        checkpoint=job.checkpoint,
        headers=dict(job.headers),
        suspect=job.place in SUSPECTS,
        lane=job.met_in,
    )
