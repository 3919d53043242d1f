"""The verbs of a worker child, but for the claim: open a lease, say what is held, end runs, tell how far they got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stillhere.backends.memory.model import Job, Worker
from stillhere.domain.job import KNOWN_LONG_MS, Outcome, OutcomeKind
from stillhere.domain.states import Event, State
from stillhere.ports.backend import (
    Beat,
    BeatReply,
    Checkpoint,
    Lengthen,
    Progress,
    ProgressItem,
    Register,
    Settle,
    SettledOne,
    WriteStatus,
)

if TYPE_CHECKING:
    from typing import Literal

    from stillhere.backends.memory.moves import Turn


def register(turn: Turn, verb: Register) -> Literal["ok", "exists", "gone"]:
    """Open a lease under an id that was never used; a late copy finds the record, or the mark of its end."""
    queue = turn.queue
    queue.is_announced = True
    there = queue.workers.get(verb.worker)
    if queue.closed.get(verb.worker) is not None or (there is not None and there.gone is not None):
        return "gone"
    if there is not None:
        return "exists"
    versions = (f"v:{number}" for number in range(1, verb.record_version + 1))
    tasks = frozenset(verb.tasks)
    queue.workers[verb.worker] = Worker(
        id=verb.worker,
        lease_ms=verb.lease_ms,
        end=turn.lease + verb.lease_ms,
        seen=turn.now,
        can=frozenset(versions) | {f"task:{task}" for task in tasks},
        info=dict(verb.info),
    )
    queue.known.update(tasks)
    if verb.declares:  # whoever registers last says it: a declaration that was taken back is not believed for ever
        for task in tasks:
            queue.lanes.pop(task, None)
        queue.lanes.update({task: lane for task, lane in verb.lanes.items() if task in tasks})
    queue.clock.lower_gap(verb.lease_ms)
    return "ok"


def beat(turn: Turn, verb: Beat) -> BeatReply:
    """The worker's own voice. What it was granted above `answered` may be on its way to it, and is left alone."""
    me = turn.queue.workers.get(verb.worker)
    if me is None or me.gone is not None:
        return BeatReply(standing="gone")
    if verb.lease_ms is not None:  # the holder's own word, and only it, shortens
        me.lease_ms = min(me.lease_ms, verb.lease_ms)
    me.end = turn.lease + me.lease_ms  # never earlier than before, but for that: the lease clock does not go back
    me.answered = max(me.answered, verb.answered)
    me.seen = turn.now
    if me.answered >= me.number:
        me.unseen_until = None
    lost = [pair for pair in verb.held if not me.has(pair)]
    mine = [pair for pair in verb.held if me.has(pair)]
    cancelled = [pair for pair in mine if me.holds[pair.job].cancel is not None]
    said = {pair.job for pair in mine}
    forgotten = [job for name, job in me.holds.items() if name not in said and job.claim <= verb.answered]
    returned = [job.id for job in forgotten if turn.give_back(job, "r", Event.LOSE)]
    return BeatReply(standing="ok", lost=lost, cancelled=cancelled, returned=returned)


def settle(turn: Turn, verb: Settle) -> list[SettledOne]:
    """End runs, each under its token: one step with all that follows from it."""
    return [_settle_one(turn, verb.worker, outcome) for outcome in verb.outcomes]


def _settle_one(turn: Turn, worker: str, outcome: Outcome) -> SettledOne:
    job = turn.queue.jobs.get(outcome.job)
    if job is None:
        return SettledOne(status="unknown")
    if job.settled is not None and job.settled[0] == outcome.token:
        return SettledOne(status="already", state=job.state, outcome=job.settled[1])
    if not _runs(job, worker, outcome.token):
        return SettledOne(status="stale", state=job.state)
    if job.cancel is not None and outcome.kind is not OutcomeKind.SUCCEEDED:
        outcome = msgspec.structs.replace(outcome, kind=OutcomeKind.CANCELLED, reason=job.cancel, result=None)
    job.settled = (outcome.token, outcome.kind)
    job.error = outcome.error or job.error
    turn.queue.settled += 1
    _end_run(turn, job, outcome)
    return SettledOne(status="ok", state=job.state, outcome=outcome.kind)


def _runs(job: Job, worker: str, token: int) -> bool:
    return job.state is State.RUNNING and job.token == token and job.worker == worker


def _end_run(turn: Turn, job: Job, outcome: Outcome) -> None:
    match outcome.kind:
        case OutcomeKind.SUCCEEDED:
            job.result = outcome.result or job.result
            turn.finish(job, Event.SUCCEED, outcome.reason, outcome.retention_ms)
        case OutcomeKind.CANCELLED:
            event = Event.DISCARD if job.cancel is None else Event.CANCEL
            turn.finish(job, event, outcome.reason, outcome.retention_ms)
        case OutcomeKind.DEAD:
            job.failures += 1
            turn.bury(job, Event.FAIL, outcome.reason)
        case OutcomeKind.RETRY:
            job.failures += 1
            _wait(turn, job, outcome, Event.RETRY, "retry")
        case OutcomeKind.SNOOZE:
            _wait(turn, job, outcome, Event.SNOOZE, "snoozed")
        case OutcomeKind.INTERRUPTED:
            job.interruptions += 1
            job.reason = "interrupted"
            turn.give_back(job, "r", Event.INTERRUPT, "interrupted")


def _wait(turn: Turn, job: Job, outcome: Outcome, event: Event, reason: str) -> None:
    turn.note_run(job, outcome.kind, turn.now)
    turn.schedule(job, outcome.delay_ms, event)
    job.reason = reason
    job.worker, job.claim = None, 0


def lengthen(turn: Turn, verb: Lengthen) -> None:
    """Know a task as long from now on. A late copy comes within the day it may add, and shortens nothing."""
    learnt = turn.queue.learnt
    for task in [task for task, until in learnt.items() if until <= turn.steady]:
        del learnt[task]
    learnt[verb.task] = turn.steady + KNOWN_LONG_MS


def checkpoint(turn: Turn, verb: Checkpoint) -> WriteStatus:
    """Keep how far a run got. A value that moved wipes the deaths off the account: the job gets on all the same."""
    job = turn.queue.jobs.get(verb.job)
    if job is None or not _runs(job, verb.worker, verb.token):
        return "stale"
    if _is_late(job.checkpoint_number, verb.token, verb.number):
        return "older"
    if job.checkpoint != verb.value:
        job.losses = job.shared = job.beside = job.vanished = 0
    job.checkpoint = verb.value
    job.checkpoint_number = (verb.token, verb.number)
    return "ok"


def _is_late(newest: tuple[int, int], token: int, number: int) -> bool:
    """A request that hung and runs after its successor."""
    return newest[0] == token and number <= newest[1]


def progress(turn: Turn, verb: Progress) -> list[WriteStatus]:
    """Keep what runs say of themselves, with the store's time."""
    return [_tell(turn, verb.worker, item) for item in verb.items]


def _tell(turn: Turn, worker: str, item: ProgressItem) -> WriteStatus:
    job = turn.queue.jobs.get(item.job)
    if job is None or not _runs(job, worker, item.token):
        return "stale"
    if _is_late(job.progress_number, item.token, item.number):
        return "older"
    said = item.value.rstrip().removesuffix("}").rstrip()
    job.progress = f'{said}{"" if said.strip() == "{" else ","}"at":{turn.now}}}'
    job.progress_number = (item.token, item.number)
    return "ok"
