"""A queue whose time the test moves, seen through the port alone: what every conformance test drives.

`World` is the queue with its producers, supervisors and administrators; `Worker` is one worker with its claim numbers.
Both speak in verbs only, so a test written with them holds for every store. Nothing sleeps: `now` is the store's clock
in ms, and it moves when a test says so, in ways that a store must tell apart:

    jump(ms)   nobody calls meanwhile: an outage of the store, or a step of its clock (also backwards)
    run(ms)    time passes as it does under supervisors that tick: the lease clock keeps pace
    age(ms)    a jump in which the store's own housekeeping gets older too
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from stillhere import stores
from stillhere.domain.job import Grant, JobRecord, NewRecord, Outcome, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import (
    AsyncStore,
    Beat,
    BeatReply,
    Cancel,
    Cancelled,
    Checkpoint,
    Claim,
    Claimed,
    End,
    Ended,
    Enqueue,
    Enqueued,
    Held,
    Hints,
    Lanes,
    Lengthen,
    Look,
    Progress,
    ProgressItem,
    Register,
    Renew,
    Renewed,
    Retried,
    Retry,
    Settle,
    SettledOne,
    Sweep,
    Swept,
    SyncStore,
    Tick,
    Ticked,
    Verb,
    WriteStatus,
)
from stillhere.ports.inspector import Audit, Complaint, Jobs, Page, Pause, Purge, QueueStatus, Status, WorkerRecord
from stillhere.ports.inspector import Workers as ListWorkers
from tests.conformance.doors import Door

R = TypeVar("R")

Listen = Callable[[str], Hints]
"""Open the ear of a worker, by its id."""

START = 1_800_000_000_000
LEASE = 30_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
EVER = 1 << 50
"""A lease-clock time after everything."""


class Time:
    """The store's clock, in ms since 1970, as this test has it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


class World:
    """One queue of one store."""

    def __init__(self, door: Door, namespace: str, queue: str = "q", *, beside: World | None = None) -> None:
        self.door, self.namespace, self.queue = door, namespace, queue
        self.time: Time = beside.time if beside else Time()
        self.store: SyncStore = beside.store if beside else stores.open_sync(door.url, namespace, clock=self.time)
        self.sound = True
        """Whether `Audit` must find nothing when the test is over."""
        self._beside: list[World] = []

    def close(self) -> None:
        try:
            for world in (self, *self._beside):
                assert not world.sound or world.audit() == []
        finally:
            self.store.close()

    def beside(self, queue: str) -> World:
        """Another queue of the same store, at the same time."""
        self._beside.append(World(self.door, self.namespace, queue, beside=self))
        return self._beside[-1]

    def open_async(self) -> AsyncStore:
        """The same store behind asyncio; the caller closes it."""
        return stores.open_async(self.door.url, self.namespace, clock=self.time)

    # -------------------------------------------------------------------------------------------------------- time

    @property
    def now(self) -> int:
        return self.time.now

    def jump(self, ms: int) -> None:
        """Time passes, or the clock steps, and nobody calls the store meanwhile."""
        self.time.now += ms

    def age(self, ms: int) -> None:
        """As `jump`, and the store's own housekeeping gets old by as much: what is kept only for a while may go.

        That clock of the store's may be a real one that runs meanwhile: leave it a minute of room.
        """
        self.jump(ms)
        self.door.age(ms)

    def run(self, ms: int, *alive: Worker) -> None:
        """Time passes under supervisors: a tick each half gap, and a renewal for each worker that is alive."""
        step = self.tick().gap_ms // 2
        while ms > 0:
            passed = min(ms, step)
            self.jump(passed)
            ms -= passed
            self.tick()
            for worker in alive:
                worker.renew()

    def tick(self) -> Ticked:
        return self.call(Tick(queue=self.queue))

    @property
    def lease_clock(self) -> int:
        return self.tick().lease_clock

    # ---------------------------------------------------------------------------------------------------- producers

    def call(self, verb: Verb[R]) -> R:
        return self.store.call(verb)

    def record(self, id: str, **fields: Any) -> NewRecord:
        return NewRecord(**({"id": id, "task": "t", "queue": self.queue, "args": "{}"} | fields))

    def send(self, *records: NewRecord) -> list[Enqueued]:
        return self.call(Enqueue(queue=self.queue, jobs=records))

    def enqueue(self, id: str, **fields: Any) -> Enqueued:
        """Add one job of the task `t`."""
        return self.send(self.record(id, **fields))[0]

    def enqueue_many(self, ids: Iterable[str], **fields: Any) -> list[str]:
        """Add jobs alike, as many calls as it takes; returns the ids."""
        records = [self.record(one, **fields) for one in ids]
        for first in range(0, len(records), 100):
            self.send(*records[first : first + 100])
        return [record.id for record in records]

    def cancel(self, job: str, **fields: Any) -> Cancelled:
        return self.call(Cancel(queue=self.queue, job=job, **fields))

    def retry(self, job: str) -> Retried:
        return self.call(Retry(queue=self.queue, job=job))

    def lengthen(self, task: str = "t") -> None:
        """A run of this task has passed its `long_after`."""
        self.call(Lengthen(queue=self.queue, task=task))

    def find(self, job: str) -> JobRecord | None:
        return self.call(Look(queue=self.queue, job=job))

    def look(self, job: str) -> JobRecord:
        """A record that must be there."""
        record = self.find(job)
        assert record is not None, f"{job} is unknown"
        return record

    def state(self, job: str) -> State:
        return self.look(job).state

    # --------------------------------------------------------------------------------------- supervisors and admins

    def worker(self, id: str = "w", **fields: Any) -> Worker:
        """A worker with its lease open."""
        worker = Worker(self, id)
        assert worker.register(**fields) == "ok"
        return worker

    def sweep(self, limit: int = 20) -> Swept:
        return self.call(Sweep(queue=self.queue, limit=limit))

    def recover(self, limit: int = 100) -> list[str]:
        """What an undertaker does at each turn: sweep, and end all that are over; returns whom it ended."""
        over = self.sweep().over
        for worker in over:
            while self.call(End(queue=self.queue, worker=worker, reason="lease over", limit=limit)).status == "more":
                pass
        return over

    def pause(self, paused: bool = True) -> bool:
        return self.call(Pause(queue=self.queue, paused=paused))

    def purge(self, job: str) -> bool:
        return self.call(Purge(queue=self.queue, job=job))

    def status(self) -> QueueStatus:
        return self.call(Status(queue=self.queue))

    def workers(self) -> dict[str, WorkerRecord]:
        return {record.id: record for record in self.call(ListWorkers(queue=self.queue))}

    def jobs(self, **fields: Any) -> Page:
        return self.call(Jobs(queue=self.queue, **fields))

    def audit(self) -> list[Complaint]:
        return self.call(Audit(queue=self.queue))


class Worker:
    """One worker of one queue; it counts its claims, and which of them it has heard the answer of."""

    def __init__(self, world: World, id: str) -> None:
        self.world, self.id = world, id
        self.n = 0
        self.answered = 0

    def call(self, verb: type[Verb[R]], **fields: Any) -> R:
        """One verb in this worker's name."""
        return self.world.call(verb(queue=self.world.queue, worker=self.id, **fields))  # type: ignore[call-arg]  # its own

    def register(self, *, lease: int = LEASE, tasks: Sequence[str] = ("t",), version: int = 1, **fields: Any) -> str:
        return self.call(Register, lease_ms=lease, tasks=tasks, record_version=version, **fields)

    def claim(
        self,
        slots: int = 10,
        lanes: Lanes = "pool",
        *,
        long: int = 0,
        n: int | None = None,
        seated: dict[str, int] | None = None,
    ) -> Claimed:
        """Claim under the next number (or this one). The answer has come, and is not yet known to have."""
        number = self.answered + 1 if n is None else n
        reply = self.call(Claim, n=number, slots=slots, long=long, lanes=lanes, seated=seated or {})
        self.n = max(self.n, number)
        return reply

    def take(
        self, slots: int = 10, lanes: Lanes = "pool", *, long: int = 0, seated: dict[str, int] | None = None
    ) -> list[Grant]:
        """Claim, and note the answer as children do before they start anything."""
        reply = self.claim(slots, lanes, long=long, seated=seated)
        assert reply.standing == "ok", reply.standing
        self.answered = self.n
        self.renew()
        return reply.jobs

    def take_one(self, lanes: Lanes = "pool") -> Grant:
        """Take the next job, which must be there."""
        grants = self.take(1, lanes)
        assert len(grants) == 1, "nothing to take"
        return grants[0]

    def beat(self, *held: Grant, answered: int | None = None, lease_ms: int | None = None) -> BeatReply:
        number = self.answered if answered is None else answered
        return self.call(Beat, answered=number, held=[pair(grant) for grant in held], lease_ms=lease_ms)

    def renew(self, *, answered: int | None = None, hand_back: int = 0) -> Renewed:
        """Its supervisor's voice; `hand_back`: the lease clock as the supervisor last saw it."""
        number = self.answered if answered is None else answered
        return self.call(Renew, answered=number, hand_back=hand_back)

    def settle(self, grant: Grant, kind: OutcomeKind = OutcomeKind.SUCCEEDED, **fields: Any) -> SettledOne:
        return self.settle_many([outcome(grant, kind, **fields)])[0]

    def settle_many(self, outcomes: Sequence[Outcome]) -> list[SettledOne]:
        return self.call(Settle, outcomes=outcomes)

    def checkpoint(self, grant: Grant, number: int, value: str) -> WriteStatus:
        return self.call(Checkpoint, job=grant.id, token=grant.token, number=number, value=value)

    def progress(self, grant: Grant, number: int, done: int) -> WriteStatus:
        item = ProgressItem(job=grant.id, token=grant.token, number=number, value=f'{{"done":{done},"total":10}}')
        return self.call(Progress, items=[item])[0]

    def end(
        self,
        default: Verdict = Verdict.VANISHED,
        *,
        reason: str = "SIGKILL",
        force: bool = True,
        verdicts: Mapping[str, Verdict] | None = None,
        details: Mapping[str, str] | None = None,
        limit: int = 100,
    ) -> Ended:
        """One call of its end."""
        return self.call(
            End,
            default=default,
            reason=reason,
            force=force,
            verdicts=verdicts or {},
            details=details or {},
            limit=limit,
        )

    def die(self, default: Verdict = Verdict.VANISHED, **fields: Any) -> Ended:
        """It dies, its supervisor sees it, and its end is carried to the end."""
        whole = Ended(status="more")
        while whole.status == "more":
            part = self.end(default, **fields)
            whole = Ended(
                status=part.status,
                returned=whole.returned + part.returned,
                suspects=whole.suspects + part.suspects,
                dead=whole.dead + part.dead,
                cancelled=whole.cancelled + part.cancelled,
            )
        assert whole.status == "ended", whole.status
        return whole


def pair(grant: Grant) -> Held:
    return Held(grant.id, grant.token)


def outcome(grant: Grant, kind: OutcomeKind = OutcomeKind.SUCCEEDED, **fields: Any) -> Outcome:
    return Outcome(job=grant.id, token=grant.token, kind=kind, **fields)


def ids(grants: Iterable[Grant]) -> list[str]:
    return [grant.id for grant in grants]
