"""The inspector port: reading and administering a queue. The same form as the backend port: verbs as values.

Reads are bounded by `limit` and paged by `after`; each is one consistent look where the store can give one (`Audit`,
`Status`), since two separate reads of a moving queue see a job in two places or in none.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from stillhere.domain.job import JobRecord
from stillhere.domain.states import State
from stillhere.ports.backend import Verb


class Queues(Verb[list[str]], frozen=True, kw_only=True):
    """Names of all queues that this namespace has ever seen, sorted. `queue` is ignored (give "")."""


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One registered worker."""

    id: str
    queue: str
    lease_ms: int
    left_ms: int
    """What is left of its lease by the lease clock; below 0: over, not yet ended."""
    seen: int
    """Time of its last sign of life, ms since 1970 UTC."""
    answered: int = 0
    holds: int = 0
    gone: str | None = None
    """Closed, with this reason; it is still being emptied."""
    info: dict[str, str] = {}
    tasks: list[str] = []


class Workers(Verb[list[WorkerRecord]], frozen=True, kw_only=True):
    """The registered workers of a queue, at most `limit`."""

    limit: int = 1000


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one queue, all from one look."""

    queue: str
    ready: int = 0
    """Includes suspects and parked jobs."""
    running: int = 0
    scheduled: int = 0
    dead: int = 0
    suspects: int = 0
    long: int = 0
    """Of the ready: those in the long lane, which start only in long places."""
    solo: int = 0
    """Of the ready: those in the solo lane, which start only in solo children."""
    long_tasks: list[str] = []
    """Tasks known as long, declared or learnt."""
    parked: int = 0
    """Ready, but no live worker knows the task or the record's version."""
    parked_tasks: list[str] = []
    inbox: int = 0
    workers: int = 0
    paused: bool = False
    oldest_ready_ms: int | None = None
    """Age of the oldest entry that waits in an ordinary lane."""
    settled: int = 0
    """Runs settled since the queue was made: two looks tell whether it moves."""


class Status(Verb[QueueStatus], frozen=True, kw_only=True):
    """One queue in figures."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, and where to go on (`after`), None at the end."""

    jobs: list[JobRecord] = []
    after: str | None = None


class Jobs(Verb[Page], frozen=True, kw_only=True):
    """List jobs. Filters are joined by and; a page may be short, or empty with an `after`, when a filter drops much."""

    state: State | None = None
    task: str | None = None
    worker: str | None = None
    id_tail: str | None = None
    error_text: str | None = None
    older_than_ms: int | None = None
    limit: int = 50
    after: str | None = None


class Ask(Verb[bool], frozen=True, kw_only=True):
    """Ask the supervisor of a running job where its code is; False: the job does not run. Forgotten after a minute."""

    id: str
    job: str


class Answer(Verb[None], frozen=True, kw_only=True):
    """The supervisor's answer to a question; kept for a minute. Without a question of this id it changes nothing."""

    id: str
    text: str
    """At most 64 KiB are kept."""


class Answered(Verb[str | None], frozen=True, kw_only=True):
    """The answer to a question, None: not yet, or no longer."""

    id: str


class Pause(Verb[bool], frozen=True, kw_only=True):
    """Stop (or resume) grants of a queue; what runs goes on. True: it changed something."""

    paused: bool


class Purge(Verb[bool], frozen=True, kw_only=True):
    """Remove one dead letter for good. False: it is not dead."""

    job: str


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is not in exactly one place (G11), or an index that names nothing."""

    job: str
    kind: Literal["nowhere", "twice", "wrong_place", "orphan_entry", "limbo_entry", "no_owner", "ttl_on_live", "unique"]
    detail: str


class Audit(Verb[list[Complaint]], frozen=True, kw_only=True):
    """Compare every record with every index in one consistent look; empty: sound. For tests and `doctor`; reads all."""
