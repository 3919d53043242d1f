"""The records of a job: what a producer sends, what a worker is granted, what anybody may read.

Field names are the wire format's (version 1): the same in the Redis hash, in `--json` output and in every other face.
Times are integer milliseconds since 1970 UTC by the *store's* clock, durations end in `_ms`, values that users made
(`args`, `result`, `checkpoint`) are JSON text which only the codec opens.
"""

from __future__ import annotations

import os
import time
from enum import StrEnum
from typing import Literal

import msgspec

from stillhere.domain.states import State

RECORD_VERSION = 1
PRIORITIES = {"high": 0, "normal": 5, "low": 9}
PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}
NORMAL = PRIORITIES["normal"]

DEFAULT_MAX_ATTEMPTS = 5
DEFAULT_MAX_LOSSES = 3
DEFAULT_RETENTION_MS = 3_600_000
DEAD_RETENTION_MS = 30 * 86_400_000
KNOWN_ID_MS = 600_000
"""A finished id stays known for at least this long, whatever the retention (G5)."""

OnConflict = Literal["existing", "replace", "raise"]
Lane = Literal["pool", "long", "solo"]
DeclaredLane = Literal["long", "solo"]
KNOWN_LONG_MS = 86_400_000
"""A task that was learnt to be long is taken to be so for this long after its last run that was."""


def new_job_id() -> str:
    """Return a UUIDv7 as 32 hex digits: ids sort by the time they were made (RFC 9562, section 5.7)."""
    millis = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = (millis << 16) | 0x7000 | (random >> 68)
    low = (0b10 << 62) | (random & ((1 << 62) - 1))
    return f"{(high << 64) | low:032x}"


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its producer sends it: bound, checked and encoded; everything but what the store adds."""

    id: str
    task: str
    queue: str
    args: str
    priority: int = NORMAL
    delay_ms: int | None = None
    """Ready this long after the store takes it (a clock that never goes back)."""
    due: int | None = None
    """Ready at this wall time, ms since 1970 UTC; at most one of `delay_ms` and `due`."""
    unique: str | None = None
    unique_for_ms: int | None = None
    """Keep the unique key this long from the enqueue, also past the job's end; None: until the end."""
    on_conflict: OnConflict = "existing"
    max_attempts: int | None = None
    max_losses: int | None = None
    timeout_ms: int | None = None
    """0: no limit; None: as the worker's task says. So is `stall_ms`."""
    stall_ms: int | None = None
    retention_ms: int | None = None
    headers: dict[str, str] = {}
    lane: DeclaredLane | None = None
    """For this job alone; None: what the workers declare of its task, or have learnt."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A job given to one worker, with the token that fences it (G2)."""

    id: str
    queue: str
    token: int
    task: str
    args: str
    v: int = RECORD_VERSION
    priority: int = NORMAL
    created: int = 0
    failures: int = 0
    losses: int = 0
    interruptions: int = 0
    max_attempts: int | None = None
    timeout_ms: int | None = None
    stall_ms: int | None = None
    retention_ms: int | None = None
    checkpoint: str | None = None
    headers: dict[str, str] = {}
    suspect: bool = False
    """It came from the suspects' lane: it must run with nothing beside it."""
    lane: Lane = "pool"
    """`long`: it takes a long place."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the store knows of one job: what `show`, `Handle.info` and `--json` print."""

    id: str
    task: str
    queue: str
    state: State
    v: int = RECORD_VERSION
    priority: int = NORMAL
    args: str | None = None
    created: int = 0
    due: int | None = None
    started: int | None = None
    ended: int | None = None
    failures: int = 0
    losses: int = 0
    """Deaths of its worker that are charged: it ran alone. Set back to 0 when a checkpoint moves it on."""
    shared: int = 0
    """Deaths of its worker beside others, culprit unknown: not charged, but it runs apart from then on."""
    beside: int = 0
    """Deaths of its worker beside a likelier cause: not charged; from the second on it runs apart."""
    vanished: int = 0
    """Lease ends that nobody witnessed (a host that went away)."""
    deaths: int = 0
    """All of the four above since the job was made, never set back."""
    interruptions: int = 0
    max_attempts: int | None = None
    max_losses: int | None = None
    timeout_ms: int | None = None
    stall_ms: int | None = None
    retention_ms: int | None = None
    unique: str | None = None
    headers: dict[str, str] = {}
    lane: DeclaredLane | None = None
    reason: str | None = None
    token: int = 0
    worker: str | None = None
    """Who holds it; once it has ended, who ran it last."""
    progress: str | None = None
    checkpoint: str | None = None
    result: str | None = None
    error: str | None = None
    """JSON `{"type","message","traceback","exit"}` of the last failure or loss."""
    runs: list[str] = []
    """JSON objects `{"worker","token","start","end","how"}` of earlier runs, newest last, at most 50.

    One that its worker's death ended also has `"exit"`, the reason of that death in words.
    """
    cancelling: bool = False


class OutcomeKind(StrEnum):
    """How a run ended, as the worker says it."""

    SUCCEEDED = "succeeded"
    RETRY = "retry"
    SNOOZE = "snooze"
    DEAD = "dead"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One settled run: what `Settle` writes under the token."""

    job: str
    token: int
    kind: OutcomeKind
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    delay_ms: int = 0
    retention_ms: int = DEFAULT_RETENTION_MS


class Verdict(StrEnum):
    """What the end of a worker means for one job it held (`PROCESSES`: poison, verdicts)."""

    CULPRIT = "culprit"
    """It ran alone, or is proven to have killed the worker: charged as a loss, runs apart from now on."""
    SUSPECT = "suspect"
    """It ran beside others and nobody knows who did it, or it is the likeliest: not charged, runs apart."""
    BESIDE = "beside"
    """Another job is the likelier cause: not charged, back in its own lane; from the second time on it runs apart."""
    BYSTANDER = "bystander"
    """Held but not started, already over, or a named innocent: back in its own lane, nothing counted."""
    INTERRUPTED = "interrupted"
    """The worker was stopped on purpose: an interruption, no budget."""
    VANISHED = "vanished"
    """The lease ended and nobody saw why: counted apart; from the second on it runs apart."""
