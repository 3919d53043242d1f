"""One job by its id, or by the end of it.

Ids are 32 digits that nobody types, and those made in one minute start alike; so a tail of six characters or more is
enough where only one job has it. An exact id is looked up at once; only a tail makes the store go through its jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stillhere.cli.filters import Filter, queues_of, walk
from stillhere.domain.errors import JobNotFound
from stillhere.ports.backend import Look

if TYPE_CHECKING:
    from stillhere.cli.place import CommandLink
    from stillhere.domain.job import JobRecord

SHORTEST = 6
_SHOWN = 5


def find_job(link: CommandLink, text: str, queue: str | None = None) -> JobRecord:
    """The job; raises `JobNotFound`, and a usage error where several fit."""
    found = _exact(link, text, queue)
    if not found and len(text) >= SHORTEST:
        found = _by_tail(link, text, queue)
    if not found:
        short = f" (a tail needs {SHORTEST} characters or more)" if len(text) < SHORTEST else ""
        where = f" in queue {queue!r}" if queue else ""
        raise JobNotFound(
            f"There is no job {text!r}{where}: never enqueued, or ended and forgotten since{short}.", text
        )
    if len(found) > 1:
        several = ", ".join(f"{job.id} ({job.queue})" for job in found[:_SHOWN])
        more = " and more" if len(found) > _SHOWN else ""
        same = len({job.id for job in found}) == 1
        raise click.UsageError(f"{text!r} fits {several}{more}: {'give --queue' if same else 'give more of the id'}.")
    return found[0]


def _exact(link: CommandLink, text: str, queue: str | None) -> list[JobRecord]:
    queues = queues_of(link, queue)
    if not queues:
        return []
    records: list[JobRecord | None] = link.ask_many([Look(queue=name, job=text) for name in queues])
    return [record for record in records if record is not None]


def _by_tail(link: CommandLink, text: str, queue: str | None) -> list[JobRecord]:
    found = []
    for job in walk(link, Filter(queue=queue, id_tail=text)):
        found.append(job)
        if len(found) > _SHOWN:
            break
    return found
