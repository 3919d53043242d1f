"""A queue on a real server, with a clock that the test moves: what the tests of the Redis store drive and look into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from stillhere.backends.redis.backend import SyncRedisStore
from stillhere.backends.redis.connection import Endpoint
from stillhere.backends.redis.scripts import SCRIPTS, Scripts
from stillhere.domain.job import Grant, JobRecord, NewRecord, Outcome, OutcomeKind, Verdict
from stillhere.ports.backend import (
    Beat,
    BeatReply,
    Claim,
    Claimed,
    End,
    Ended,
    Enqueue,
    Enqueued,
    Held,
    Lanes,
    Look,
    Register,
    Renew,
    Renewed,
    Settle,
    SettledOne,
    Sweep,
    Swept,
    Tick,
    Verb,
)
from stillhere.ports.inspector import Audit, Complaint, QueueStatus, Status
from tests.support.servers import RedisServer

R = TypeVar("R")

START = 1_800_000_000_000
LEASE_MS = 30_000


EVER = 1 << 50
"""A lease-clock time after everything."""


class Queue:
    """One queue, seen by producers, workers and supervisors; `now` is the store's time in ms."""

    def __init__(
        self, server: RedisServer, namespace: str, *, name: str = "q", scripts: Scripts = SCRIPTS, sound: bool = True
    ) -> None:
        self.server, self.namespace, self.name = server, namespace, name
        self.now = START
        self.sound = sound
        """Whether the audit at the end must find nothing."""
        self.store = SyncRedisStore(Endpoint(server.url), namespace, clock=lambda: self.now, scripts=scripts)
        self.raw: Any = server.client()
        self.claims: dict[str, int] = {}

    def close(self) -> None:
        """End of the test."""
        try:
            if self.sound:
                assert self.audit() == []
        finally:
            self.store.close()

    def key(self, name: str) -> str:
        """The full name of one of the queue's keys."""
        return f"{self.namespace}:{{{self.name}}}:{name}"

    def job_hash(self, job: str) -> dict[str, str]:
        """The bare record."""
        return cast("dict[str, str]", self.raw.hgetall(self.key(f"j:{job}")))

    def lane(self, name: str) -> list[str]:
        """The ids of all entries of a lane, in order."""
        return [fields["id"] for _, fields in self.raw.xrange(self.key(f"s:{name}"))]

    def pending(self, lane: str) -> dict[str, str]:
        """Entry -> consumer."""
        rows = self.raw.xpending_range(self.key(f"s:{lane}"), "stillhere", "-", "+", 1000)
        return {row["message_id"]: row["consumer"] for row in rows}

    # ------------------------------------------------------------------------------------------------- the verbs

    def call(self, verb: Verb[R]) -> R:
        """Run one verb."""
        return self.store.call(verb)

    def enqueue(self, *ids: str, **fields: Any) -> list[Enqueued]:
        """Add jobs of the task `t`."""
        new = [NewRecord(**({"id": i, "task": "t", "queue": self.name, "args": "{}"} | fields)) for i in ids]
        return self.call(Enqueue(queue=self.name, jobs=new))

    def register(
        self, worker: str, *, lease_ms: int = LEASE_MS, tasks: Sequence[str] = ("t",), version: int = 1
    ) -> str:
        """Open a lease."""
        return self.call(
            Register(queue=self.name, worker=worker, lease_ms=lease_ms, tasks=tasks, record_version=version)
        )

    def claim(self, worker: str, slots: int = 10, lanes: Lanes = "pool", *, n: int | None = None) -> Claimed:
        """Claim under the next number, or under this one."""
        number = self.claims.get(worker, 0) + 1 if n is None else n
        reply = self.call(Claim(queue=self.name, worker=worker, n=number, slots=slots, lanes=lanes))
        if reply.standing == "ok":
            self.claims[worker] = number
        return reply

    def take(self, worker: str, slots: int = 10, lanes: Lanes = "pool") -> list[Grant]:
        """Claim, and let the store know that the reply came."""
        reply = self.claim(worker, slots, lanes)
        assert reply.standing == "ok"
        self.renew(worker)
        return reply.jobs

    def renew(self, worker: str, *, answered: int | None = None, hand_back: bool = False) -> Renewed:
        """The supervisor's voice."""
        number = self.claims.get(worker, 0) if answered is None else answered
        return self.call(Renew(queue=self.name, worker=worker, answered=number, hand_back=EVER if hand_back else 0))

    def beat(self, worker: str, *held: Grant, answered: int | None = None, lease_ms: int | None = None) -> BeatReply:
        """The worker's own voice."""
        number = self.claims.get(worker, 0) if answered is None else answered
        pairs = [Held(grant.id, grant.token) for grant in held]
        return self.call(Beat(queue=self.name, worker=worker, answered=number, held=pairs, lease_ms=lease_ms))

    def settle(self, worker: str, grant: Grant, kind: OutcomeKind = OutcomeKind.SUCCEEDED, **fields: Any) -> SettledOne:
        """End one run."""
        outcome = Outcome(job=grant.id, token=grant.token, kind=kind, **fields)
        return self.call(Settle(queue=self.name, worker=worker, outcomes=[outcome]))[0]

    def end(self, worker: str, default: Verdict = Verdict.VANISHED, **fields: Any) -> Ended:
        """One call of `End`, forced unless said otherwise."""
        options: dict[str, Any] = {"reason": "SIGKILL", "force": True} | fields
        return self.call(End(queue=self.name, worker=worker, default=default, **options))

    def tick(self, ms: int = 0) -> int:
        """Let time pass in steps that the lease clock follows; returns the lease clock."""
        clock = self.call(Tick(queue=self.name)).lease_clock
        while ms > 0:
            step = min(ms, 50)
            self.now += step
            ms -= step
            clock = self.call(Tick(queue=self.name)).lease_clock
        return clock

    def sweep(self, limit: int = 20) -> Swept:
        """Find what is over."""
        return self.call(Sweep(queue=self.name, limit=limit))

    def look(self, job: str) -> JobRecord:
        """A record that must be there."""
        record = self.call(Look(queue=self.name, job=job))
        assert record is not None
        return record

    def status(self) -> QueueStatus:
        """The queue in figures."""
        return self.call(Status(queue=self.name))

    def audit(self) -> list[Complaint]:
        """What is wrong with the queue."""
        return self.call(Audit(queue=self.name))


MakeQueue = Callable[..., Queue]


def queues(server: RedisServer, namespace: str) -> Iterator[MakeQueue]:
    """Make queues on one server; each is audited at the end."""
    made: list[Queue] = []

    def make(*, scripts: Scripts = SCRIPTS, sound: bool = True) -> Queue:
        made.append(Queue(server, namespace, scripts=scripts, sound=sound))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def xadd(client: Any, key: str, *words: str | bytes) -> str:
    """XADD as any other program would send it."""
    return cast("str", client.execute_command("XADD", key, "*", *words))
