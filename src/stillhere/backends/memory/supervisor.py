"""The verbs of a supervisor: keep a worker alive, tick the lease clock, find leases that are over, end a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stillhere.backends.memory.model import SOLO, SUSPECTS, Job, Worker
from stillhere.domain.job import DEFAULT_MAX_LOSSES, Verdict
from stillhere.domain.states import Event
from stillhere.ports.backend import Asked, End, Ended, Held, Renew, Renewed, Sweep, Swept, Tick, Ticked
from stillhere.ports.inspector import Answer

if TYPE_CHECKING:
    from stillhere.backends.memory.moves import Turn

CLOSED_KNOWN_MS = 86_400_000
"""How long the id of a closed worker is remembered against late requests."""
MOST_VANISHED, MOST_DEATHS = 10, 100
MOST_AT_ONCE = 1_000
MOST_DETAIL, MOST_ANSWER = 16_000, 65_536
"""Bytes of UTF-8 that are kept of a stack."""
MOST_ASKED = 20
ASK_KEPT_MS = 60_000


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
    deaf = me.holds.values() if verb.hand_back else ()
    cancelled = [Held(job.id, job.token) for job in deaf if job.cancel is not None]
    return Renewed(standing="ok", returned=returned, cancelled=cancelled)


def tick(turn: Turn, verb: Tick) -> Ticked:
    """Move the lease clock, which every verb that writes has done before it begins."""
    del verb
    queue = turn.queue
    drop_old_questions(turn)
    oldest = sorted((ask.at, name) for name, ask in queue.asks.items())[:MOST_ASKED]
    asks = [Asked(id=name, worker=queue.asks[name].worker, job=queue.asks[name].job) for _, name in oldest]
    return Ticked(
        lease_clock=turn.lease,
        gap_ms=queue.clock.gap_ms,
        suspects=queue.waiting(SUSPECTS),
        solo=queue.waiting(SOLO),
        asks=asks,
    )


def drop_old_questions(turn: Turn) -> None:
    """Forget the questions that nobody has answered in time."""
    asks = turn.queue.asks
    for name in [name for name, ask in asks.items() if ask.at <= turn.steady - ASK_KEPT_MS]:
        del asks[name]


def answer(turn: Turn, verb: Answer) -> None:
    """Keep the answer to a question that is there; so the first one counts."""
    queue = turn.queue
    drop_old_questions(turn)
    if queue.asks.pop(verb.id, None) is not None:
        queue.answers.put(verb.id, cut(verb.text, MOST_ANSWER))
        queue.answers.expire(verb.id, queue.own_clock() + ASK_KEPT_MS)


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
        death = LossError(
            type="WorkerLost",
            message=f"its worker ended while it ran: {me.gone}",
            traceback=cut(verb.details.get(job.id, ""), MOST_DETAIL),
            exit=me.gone or "",
        )
        became[_lose(turn, job, verdict, death)].append(job.id)
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


def cut(text: str, most: int) -> str:
    """At most so many bytes of it, in whole characters."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _lose(turn: Turn, job: Job, verdict: Verdict, death: LossError) -> str:
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
        case Verdict.BESIDE:
            job.beside += 1
        case Verdict.VANISHED:
            job.vanished += 1
    return _charge(turn, job, verdict, death)


def _charge(turn: Turn, job: Job, verdict: Verdict, death: LossError) -> str:
    job.deaths += 1
    job.error = msgspec.json.encode(death).decode()
    if _over_budget(job) and job.cancel is None:
        turn.bury(job, Event.EXHAUST, "lost")
        return "dead"
    job.reason = "lost"
    innocent = (verdict is Verdict.VANISHED and job.vanished == 1) or (verdict is Verdict.BESIDE and job.beside == 1)
    side = "r" if innocent or verdict is Verdict.CULPRIT else "m"
    if not turn.give_back(job, side, Event.LOSE, verdict, exit=death.exit):
        return "cancelled"
    return "suspects" if job.is_suspect else "returned"


def _over_budget(job: Job) -> bool:
    budget = DEFAULT_MAX_LOSSES if job.max_losses is None else job.max_losses
    return job.losses > budget or job.shared > 4 * budget or job.vanished > MOST_VANISHED or job.deaths > MOST_DEATHS
