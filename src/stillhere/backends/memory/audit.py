"""The audit: every place says which jobs it has, then every job is asked if that is right.

The model's two doors keep it whole, so this finds only what somebody broke from behind; the stores whose indexes are
apart from their records are asked the same questions.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

from stillhere.backends.memory.model import DEAD, DONE, ETA, SOON, Job, Queue
from stillhere.domain.states import LIVE, State
from stillhere.ports.inspector import Audit, Complaint

if TYPE_CHECKING:
    from stillhere.backends.memory.moves import Turn

_STATES = {
    SOON: {State.SCHEDULED},
    ETA: {State.SCHEDULED},
    DEAD: {State.DEAD},
    DONE: {State.SUCCEEDED, State.CANCELLED},
}
_READY = {State.READY}


def audit(turn: Turn, verb: Audit) -> list[Complaint]:
    """Compare every record with every place."""
    del verb
    queue = turn.queue
    found = _where(queue)
    complaints: list[Complaint] = []
    for name, job in queue.jobs.items():
        complaints += _check_places(queue, job, found.pop(name, []))
        complaints += _check_keeping(queue, job)
    for name, places in found.items():
        complaints.append(Complaint(job=name, kind="orphan_entry", detail=f"listed in {places[0]}, but it is unknown"))
    return complaints + _walk_keys(queue)


def _where(queue: Queue) -> dict[str, list[str]]:
    """The places that name each job."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, place in queue.places.items():
        for _, job in place.rows():
            found[job].append(name)
    for me in queue.workers.values():
        for job in me.holds:
            found[job].append(f"the holdings of {me.id}")
    return found


def _check_places(queue: Queue, job: Job, places: list[str]) -> list[Complaint]:
    kind: Literal["nowhere", "twice", "wrong_place", "no_owner"]
    if len(places) > 1:
        kind, detail = "twice", ", ".join(places)
    elif job.state is State.RUNNING and job.worker not in queue.workers:
        kind, detail = "no_owner", f"held by {job.worker}, which is not registered"
    elif not places:
        kind, detail = "nowhere", f"its state is {job.state}, and no place names it"
    elif not _fits(job, places[0]):
        kind, detail = "wrong_place", f"its state is {job.state}, its place is {places[0]}"
    else:
        return []
    return [Complaint(job=job.id, kind=kind, detail=detail)]


def _fits(job: Job, place: str) -> bool:
    if job.state is State.RUNNING:
        return place == f"the holdings of {job.worker}"
    return place == job.place and job.state in _STATES.get(place, _READY)


def _check_keeping(queue: Queue, job: Job) -> list[Complaint]:
    if job.state not in LIVE:
        return []
    complaints = []
    if queue.jobs.mortal(job.id):
        complaints.append(Complaint(job=job.id, kind="ttl_on_live", detail=f"it would vanish while it is {job.state}"))
    held = None if job.unique is None else queue.unique.get((job.task, job.unique))
    if job.unique is not None and (held is None or held.job != job.id):
        detail = f"its unique key {job.unique} is not its own"
        complaints.append(Complaint(job=job.id, kind="unique", detail=detail))
    return complaints


def _walk_keys(queue: Queue) -> list[Complaint]:
    complaints = []
    for key, held in queue.unique.items():
        job = queue.jobs.get(held.job)
        if (job is None or job.state not in LIVE) and not queue.unique.mortal(key):
            detail = f"the key {key[1]} of {key[0]} is kept for a job that has ended"
            complaints.append(Complaint(job=held.job, kind="unique", detail=detail))
    return complaints
