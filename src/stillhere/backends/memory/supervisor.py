"""The verbs of a supervisor: keep a worker alive, tick the lease clock, find leases that are over, end a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stillhere.backends.memory.model import SUSPECTS, Job, Worker
from stillhere.domain.job import DEFAULT_MAX_LOSSES, Verdict
from stillhere.domain.states import Event
from stillhere.ports.backend import End, Ended, Renew, Renewed, Sweep, Swept, Tick, Ticked

if TYPE_CHECKING:
    from stillhere.backends.memory.moves import Turn

CLOSED_KNOWN_MS = 86_400_000
"""How long the id of a closed worker is remembered against late requests."""
MOST_VANISHED, MOST_DEATHS = 10, 100
MOST_AT_ONCE = 1_000


class LossError(msgspec.Struct):
    """The error of a job whose worker died: the same shape as a handler's."""

    type: str
    message: str
    traceback: str
    exit: str


def renew(turn: Turn, verb: Renew) -> Renewed:
    """Keep a worker alive, and pass on the number of its highest answered claim.

    What a silent child was granted before `hand_back` goes back; what was granted later came after it had woken.
    """
    me = turn.queue.workers.get(verb.worker)
    if me is None or me.gone is not None:
        closed = me is not None or turn.queue.closed.get(verb.worker) is not None
        return Renewed(standing="gone" if closed else "unknown")
    me.end = turn.lease + me.lease_ms
    me.answered = max(me.answered, verb.answered)
    me.seen = turn.now
    unseen = me.granted_at < verb.hand_back
    returned = turn.take_back(me) if unseen else []
    if unseen or me.answered >= me.number:
        me.unseen_until = None
    return Renewed(standing="ok", returned=returned)


def tick(turn: Turn, verb: Tick) -> Ticked:
    """Move the lease clock, which every verb that writes has done before it begins."""
    del verb
    gap_ms = turn.queue.clock.gap_ms
    return Ticked(lease_clock=turn.lease, gap_ms=gap_ms, suspects=turn.queue.waiting(SUSPECTS))


def sweep(turn: Turn, verb: Sweep) -> Swept:
    """Find the leases that are over, and take back grants that nobody has answered for a whole lease."""
    workers = turn.queue.workers.values()
    over = sorted((me.end, me.id) for me in workers if me.end <= turn.lease)
    unseen = sorted(
        (me.unseen_until, me.id) for me in workers if me.unseen_until is not None and me.unseen_until <= turn.lease
    )
    returned: list[str] = []
    for _, name in unseen[: verb.limit]:
        me = turn.queue.workers[name]
        returned += turn.take_back(me)
        me.unseen_until = None
    suspects = turn.queue.waiting(SUSPECTS)
    return Swept(over=[name for _, name in over[: verb.limit]], returned=returned, suspects=suspects)


def end(turn: Turn, verb: End) -> Ended:
    """Close a worker id for ever and make its jobs ready, at most `limit` a call.

    The mark comes first: from then on its holdings only shrink, and anybody can go on where this caller stopped.
    """
    me = turn.queue.workers.get(verb.worker)
    if me is None:
        return Ended(status="unknown")
    if not verb.force and me.gone is None and turn.lease < me.end:
        return Ended(status="alive")
    if me.gone is None:
        _close(turn, me, verb)
    became: dict[str, list[str]] = {"returned": [], "suspects": [], "dead": [], "cancelled": []}
    for job in list(me.holds.values())[: min(verb.limit, MOST_AT_ONCE)]:
        verdict = Verdict.BYSTANDER if job.claim > me.answered else verb.verdicts.get(job.id, me.verdict)
        became[_lose(turn, job, verdict, me.gone or "")].append(job.id)
    if me.holds:
        return Ended(status="more", **became)
    _remove(turn, me)
    return Ended(status="ended", **became)


def _close(turn: Turn, me: Worker, verb: End) -> None:
    me.gone, me.verdict, me.end, me.unseen_until = verb.reason or "ended", verb.default, -1, None
    turn.queue.known.subtract(need.removeprefix("task:") for need in me.can if need.startswith("task:"))


def _remove(turn: Turn, me: Worker) -> None:
    queue = turn.queue
    del queue.workers[me.id]
    queue.cancels.pop(me.id, None)
    queue.closed.put(me.id, me.gone or "")
    queue.closed.expire(me.id, queue.own_clock() + CLOSED_KNOWN_MS)
    if not queue.workers:
        queue.clock.reset_gap()


def _lose(turn: Turn, job: Job, verdict: Verdict, exit: str) -> str:
    """What the end of its worker means for one job; returns the list of the answer that it belongs on."""
    match verdict:
        case Verdict.BYSTANDER:  # nothing is counted; a grant that nobody answered never was a run
            return "returned" if turn.give_back(job, "r", Event.LOSE) else "cancelled"
        case Verdict.INTERRUPTED:
            job.interruptions += 1
            job.reason = "interrupted"
            return "returned" if turn.give_back(job, "r", Event.INTERRUPT, verdict) else "cancelled"
        case Verdict.CULPRIT:
            job.losses += 1
        case Verdict.SUSPECT:
            job.shared += 1
        case Verdict.VANISHED:
            job.vanished += 1
    return _charge(turn, job, verdict, exit)


def _charge(turn: Turn, job: Job, verdict: Verdict, exit: str) -> str:
    job.deaths += 1
    lost = LossError("WorkerLost", f"its worker ended while it ran: {exit}", "", exit)
    job.error = msgspec.json.encode(lost).decode()
    if _over_budget(job) and job.cancel is None:
        turn.bury(job, Event.EXHAUST, "lost")
        return "dead"
    job.reason = "lost"
    in_front = verdict is Verdict.CULPRIT or (verdict is Verdict.VANISHED and job.vanished == 1)
    if not turn.give_back(job, "r" if in_front else "m", Event.LOSE, verdict):
        return "cancelled"
    return "suspects" if job.is_suspect else "returned"


def _over_budget(job: Job) -> bool:
    budget = DEFAULT_MAX_LOSSES if job.max_losses is None else job.max_losses
    return job.losses > budget or job.shared > 4 * budget or job.vanished > MOST_VANISHED or job.deaths > MOST_DEATHS
