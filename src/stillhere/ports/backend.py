"""The backend port: the verbs of the queue as values, their replies, and what a store promises for them.

A verb is a frozen value (`Claim(queue="default", worker=w, n=7, slots=20)`); a store runs it and returns the verb's
reply. One verb is one file of the same stem in `lua/` or `sql/`. Verbs as values give one way in for asyncio and for
threads, one round trip for a batch (`call_many`), and requests that a test can send late and twice (G12).

The guarantees a store gives; the conformance suite tests each under its number on every store.

G1  Enqueue is durable when it returns; the same id, or a live unique key, twice is one job; the caller learns which.
G2  Grant: a ready job goes to one worker; each grant raises the job's token; no token is granted twice.
G3  Lease end: judged by the store's lease clock and the holder's own length; other workers' settings cannot shorten it.
G4  Renew works only for what the worker still holds; it takes nothing back and shortens nothing but, by the holder's
    own word when it drains, the holder's own lease.
G5  Settle counts only under the current worker and token, is one atomic step with all that it entails, and says so when
    it is repeated. A finished id stays known for at least 10 minutes.
G6  Checkpoint and progress are written only under the current token, in their own order; the next grant carries the
    last checkpoint.
G7  Expire acts only on leases that are over at the moment of writing, once each, in bounded steps; it counts a loss and
    never a failure; suspects of a crash run apart; a grant that nobody answered returns without a charge.
G8  Cancel: a waiting job at once; a running one hears of it within a second and ends cancelled on whatever way out.
G9  Due: a delayed, retried or scheduled job becomes ready once, not before its time, and holds no lease while it waits.
G10 Wake: notifications are hints; with every one of them lost, polling still finishes all work.
G11 No limbo: at every instant a job is in exactly one place; `Audit` finds one that is not.
G12 Bounded and repeatable: each call ends within its deadline; every verb is safe late, twice and out of order.
G13 A job of any length runs once while its worker process and one of its two voices live.
G14 Recovery is bounded: 1 s (and 0.1 s per GB held) after a worker dies under its supervisor; 1.3 T + 1 s of contact
    after a whole host dies.
G15 Nobody re-enqueues by the clock: heal adds a job only to a queue that is empty, in one atomic step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from stillhere.domain.job import (
    RECORD_VERSION,
    DeclaredLane,
    Grant,
    JobRecord,
    NewRecord,
    Outcome,
    OutcomeKind,
    Verdict,
)
from stillhere.domain.states import State

R = TypeVar("R")
BATCH = 100
"""Most jobs that one `Enqueue`, `Settle`, `Progress` or `End` touches: bounds a script to a few ms (G7)."""


class Verb(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A request to the store about one queue; `R` is the type of its reply."""

    queue: str


# ---------------------------------------------------------------------------------------------------- producers


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one new job."""

    id: str
    """The job that stands: the new one, or the one that was there."""
    created: bool
    state: State
    conflict: Literal["", "id", "unique"] = ""
    """Why nothing was created."""
    known: bool = True
    """False: live workers are there and none of them knows the task."""


class Enqueue(Verb[list[Enqueued]], frozen=True, kw_only=True):
    """Add up to `BATCH` jobs in one step (G1). `on_conflict="replace"` cancels a *waiting* holder of the key."""

    jobs: Sequence[NewRecord]


class Look(Verb[JobRecord | None], frozen=True, kw_only=True):
    """Read one job."""

    job: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `Cancel`; `changed` False: it had ended, was being cancelled already, or is unknown (`state` None)."""

    changed: bool
    state: State | None = None


class Cancel(Verb[Cancelled], frozen=True, kw_only=True):
    """Cancel a job: at once when it waits; when it runs, flag it and tell its worker (G8)."""

    job: str
    reason: str = "cancelled"
    retention_ms: int | None = None


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `Retry`; `state` is the one before, None: unknown."""

    changed: bool
    state: State | None = None


class Retry(Verb[Retried], frozen=True, kw_only=True):
    """Make a waiting retry ready now, or a dead letter ready with fresh budgets. Nothing else changes."""

    job: str


# ------------------------------------------------------------------------------------------------ worker's voice

Standing = Literal["ok", "gone", "over"]
"""`gone`: this worker id is closed for ever. `over`: the lease is past its end; renew first, then repeat."""


class Register(Verb[Literal["ok", "exists", "gone"]], frozen=True, kw_only=True):
    """Open a lease under a new worker id. Repeated with the same id while it lives: `exists`; once closed: `gone`."""

    worker: str
    lease_ms: int
    tasks: Sequence[str] = ()
    """The names (and aliases) it can run; others are set aside for a worker that can (never a hot loop)."""
    record_version: int = RECORD_VERSION
    lanes: Mapping[str, DeclaredLane] = {}
    """Tasks that it declares `long` or `solo`; others it knows are neither (any more). Unless it does not declare."""
    declares: bool = True
    info: Mapping[str, str] = {}
    """For people: `host`, `pid`, `name`, `slots`, `version`."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `Claim`."""

    standing: Literal["ok", "gone", "over", "old"]
    """`old`: a later claim has been served already; this one was late and got nothing."""
    jobs: list[Grant] = []
    more: bool = False
    """Work is left that this worker could have taken with more slots."""
    next_due_ms: int | None = None
    """Until the next scheduled job is due, in ms from now."""
    paused: bool = False
    dropped: list[str] = []
    """Ids that the claim met and set aside because they were not jobs (dead letters now, or garbage)."""


Lanes = Literal["pool", "solo", "both"]


class Claim(Verb[Claimed], frozen=True, kw_only=True):
    """Take up to `slots` ready jobs (G2). The same `n` again gives the same grants; a lower one is refused.

    Number n also says that n - 1 has been answered, so at most one claim of a worker and queue is unanswered.
    `lanes`: `pool` up to `slots` jobs of the pool lane and up to `long` of the long lane; `solo` one job, a suspect
    before one of the solo lane; `both` a suspect, and only that one, else as `pool`: for a worker that runs nothing. A
    job that is met in a lane where it does not belong (any more) is moved to its own, uncounted.
    """

    worker: str
    n: int
    slots: int
    long: int = 0
    """Long places that may be filled, less those that runs in slots need: `seated` has the number of these by task."""
    lanes: Lanes = "pool"
    seated: dict[str, int] = {}


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A (job, token) pair: one grant."""

    job: str
    token: int


class BeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `Beat`. Only pairs of the list that was sent can be lost."""

    standing: Literal["ok", "gone"]
    lost: list[Held] = []
    cancelled: list[Held] = []
    returned: list[str] = []
    """Grants the store had for this worker that were answered and yet not held: ready again."""


class Beat(Verb[BeatReply], frozen=True, kw_only=True):
    """The worker's own voice: renew, say what is held, hear what is lost or cancelled (G4, G8).

    `held` contains every grant whose settle is not confirmed. `lease_ms` given: the holder lowers its own lease to
    that length (a drain). A lease already over but not yet ended is renewed: nobody else has its jobs.
    """

    worker: str
    answered: int
    held: Sequence[Held] = ()
    lease_ms: int | None = None


class SettledOne(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one outcome."""

    status: Literal["ok", "already", "stale", "unknown"]
    """`already`: this token was settled before (`outcome` says how). `stale`: the job is not under this token."""
    state: State | None = None
    outcome: OutcomeKind | None = None


class Settle(Verb[list[SettledOne]], frozen=True, kw_only=True):
    """End up to `BATCH` runs, each under its token (G5). One that was being cancelled ends so, unless it succeeded."""

    worker: str
    outcomes: Sequence[Outcome]


class Lengthen(Verb[None], frozen=True, kw_only=True):
    """A run has passed its `long_after`: its task is known as long for a day from now, and is not re-told needlessly.

    Its jobs go to the long lane at the enqueue; those that wait in the pool lane when a claim meets them.
    """

    task: str


WriteStatus = Literal["ok", "older", "stale"]


class Checkpoint(Verb[WriteStatus], frozen=True, kw_only=True):
    """Store where the run got to (G6). `number` rises with each write under one token; a lower one changes nothing."""

    worker: str
    job: str
    token: int
    number: int
    value: str


class ProgressItem(msgspec.Struct, frozen=True, kw_only=True):
    """One job's newest progress, JSON `{"done","total","note"}`; the store adds `at`."""

    job: str
    token: int
    number: int
    value: str


class Progress(Verb[list[WriteStatus]], frozen=True, kw_only=True):
    """Store the progress of up to `BATCH` runs (G6)."""

    worker: str
    items: Sequence[ProgressItem]


# --------------------------------------------------------------------------------------------- supervisor's voice


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `Renew`; `unknown`: no such worker (also after the store lost its data)."""

    standing: Literal["ok", "gone", "unknown"]
    returned: list[str] = []
    cancelled: list[Held] = []


class Renew(Verb[Renewed], frozen=True, kw_only=True):
    """The supervisor's voice: keep a worker's lease alive, pass on its highest answered claim.

    `hand_back`: the child's loop is silent; what it was granted under a higher number is ready again at once, if it was
    granted before this time of the lease clock (0: it is not silent), and the reply names what is cancelled. The bound
    makes a late copy harmless: what the child claims after it has woken was granted later than any tick seen before.
    """

    worker: str
    answered: int
    hand_back: int = 0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a job that runs: where is its code now."""

    id: str
    worker: str
    job: str


class Ticked(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `Tick` and the common part of a sweep."""

    lease_clock: int
    gap_ms: int
    suspects: int = 0
    solo: int = 0
    """Jobs that wait in the solo lane, and before it in the suspects' lane."""
    asks: list[Asked] = []
    """Questions that no supervisor has answered yet, of all workers of the queue, at most 20."""


class Tick(Verb[Ticked], frozen=True, kw_only=True):
    """Move the lease clock: supervisors send one each half gap, so that it runs while anybody is there."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `Sweep`: workers whose lease is over, or that are closed and still hold jobs; the caller ends each."""

    over: list[str] = []
    returned: list[str] = []
    """Grants that nobody had answered for a whole lease length: ready again, nothing counted."""
    suspects: int = 0


class Sweep(Verb[Swept], frozen=True, kw_only=True):
    """Find at most `limit` leases that are over (G7), and take back grants that were never answered."""

    limit: int = 20


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to `End`."""

    status: Literal["more", "ended", "alive", "unknown"]
    """`more`: repeat the same call. `alive`: the lease is not over and `force` was not given."""
    returned: list[str] = []
    suspects: list[str] = []
    dead: list[str] = []
    cancelled: list[str] = []


class End(Verb[Ended], frozen=True, kw_only=True):
    """Close a worker id for ever and make its jobs ready, at most `limit` a call (G7).

    `verdicts` names what the end means for single jobs, `default` for all others it had answered; grants it never
    answered are bystanders whatever is said. The first `reason` stays. A worker that leaves ends itself, forced, with
    the default `INTERRUPTED`. `details`: by job, where its code was (a stack), kept as the error's traceback.
    """

    worker: str
    reason: str
    force: bool = False
    default: Verdict = Verdict.VANISHED
    verdicts: Mapping[str, Verdict] = {}
    details: Mapping[str, str] = {}
    limit: int = BATCH


# ------------------------------------------------------------------------------------------------------- stores


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """Something may have changed: work came (`wake`), or a job this worker holds is to be cancelled (`cancel`)."""

    kind: Literal["wake", "cancel"]
    queue: str
    job: str | None = None
    token: int | None = None


class Hints(Protocol):
    """A worker's ear, on a connection of its own. Losing a hint costs one poll, never a job (G10)."""

    def want(self, wake: bool) -> None:  # noqa: FBT001
        """Listen for work too (True), or only for cancels (False). Takes effect at once, also in mid wait."""

    async def next(self, timeout: float) -> Hint | None:
        """Wait at most `timeout` seconds for a hint; None when none came. Raises `StoreUnavailable`."""

    async def aclose(self) -> None:
        """Close the connection."""


class AsyncStore(Protocol):
    """A store behind asyncio. Every call ends within `timeout` seconds and is never repeated unseen."""

    async def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        """Run one verb. Raises `StoreUnavailable` (not reached, no answer in time), `StoreFull` (no memory left)."""

    async def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        """Run verbs in one round trip; each is atomic by itself, the first error is raised after all have run."""

    def hints(self, worker: str, queues: Sequence[str]) -> Hints:
        """Open the ear of a worker."""

    async def aclose(self) -> None:
        """Close all connections."""


class SyncStore(Protocol):
    """The same behind blocking calls, for threads and scripts. Safe to use from several threads."""

    def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        """Run one verb; errors as in `AsyncStore.call`."""

    def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        """Run verbs in one round trip; errors as in `AsyncStore.call_many`."""

    def close(self) -> None:
        """Close all connections."""
