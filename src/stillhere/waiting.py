"""Why a job does not move, said in one line of the log: by a handle that waits too long, by a sender nobody can serve.

These are scripts (see `link`): they ask the store and log; they never raise of themselves and decide nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stillhere.domain.states import State
from stillhere.ports.inspector import Queues, QueueStatus, Status, Workers

if TYPE_CHECKING:
    from stillhere.domain.job import JobRecord
    from stillhere.link import Script

log = logging.getLogger("stillhere")

_MOST_QUEUES = 20


def explain_waiting(record: JobRecord) -> Script[None]:
    """One line on a job that still waits, when there is something to say about it."""
    if record.state is not State.READY:
        return
    status: QueueStatus = yield Status(queue=record.queue)
    why = ""
    if status.paused:
        why = f"queue {record.queue!r} is paused"
    elif not status.workers:
        others = yield from _served()
        where = f"workers: {', '.join(others)}" if others else "no worker at all is running"
        why = f"no worker listens to queue {record.queue!r} ({where})"
    elif record.reason == "unknown_task":
        known = yield from _known(record.queue)
        why = f"no live worker knows {record.task!r} (known: {known})"
    if why:
        log.warning("still waiting for %s: %s.", record.id, why)


def warn_unknown_task(job: str, task: str, queue: str) -> Script[None]:
    """One line on a job that was just sent and that no live worker can run."""
    known = yield from _known(queue)
    log.warning(
        "Job %s sent, but no live worker knows %r (known: %s). Is its module in App(include=[...])?", job, task, known
    )


def _known(queue: str) -> Script[str]:
    workers = yield Workers(queue=queue)
    return ", ".join(sorted({task for worker in workers for task in worker.tasks})) or "nothing"


def _served() -> Script[list[str]]:
    """Names of queues that some worker listens to."""
    queues: list[str] = yield Queues(queue="")
    if not queues:
        return []
    found: list[QueueStatus] = yield [Status(queue=queue) for queue in queues[:_MOST_QUEUES]]
    return [status.queue for status in found if status.workers]
