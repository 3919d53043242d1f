"""What the store knows: jobs, workers, places, and the clocks of one queue. Data, and the few rules that keep it whole.

A job is in one place at a time because there is only one way in, `Queue.settle_in`, and one way out, `Queue.take_out`,
and every move is the one after the other under the space's lock. A place is a lane, one of the two waiting rooms, a
park, the list of dead letters, the list of the ended, or the holdings of a worker.

What is kept only for a while (ended jobs, unique keys past their job's end, the ids of closed workers) grows old by a
clock of the store's own, which no test's clock moves; a server's keys expire in the same way.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from stillhere.domain.job import DeclaredLane, JobRecord, Lane, OutcomeKind, Verdict
from stillhere.domain.lease import LeaseClock
from stillhere.domain.states import Event, State, apply
from stillhere.ports.backend import Held, Hint

LANES = ("0:r", "0:m", "5:r", "5:m", "9:r", "9:m")
"""The pool's lane in the order of claims: of each priority what was running before (`r`), then what is new (`m`)."""
LONG = tuple(f"long:{lane}" for lane in LANES)
SOLO = tuple(f"solo:{lane}" for lane in LANES)
SUSPECTS = ("sus:r", "sus")
ALL_LANES = (*LANES, *LONG, *SOLO, *SUSPECTS)
SOON, ETA, DEAD, DONE = "soon", "eta", "dead", "done"

MOST_WAKES = 16
MOST_CANCELS = 1_000

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Job:
    """One job: the record that people read, then what only the store needs."""

    id: str
    task: str
    args: str | None
    priority: int
    created: int
    state: State | None = None
    """None: about to be added."""
    v: int = 1
    due: int | None = None
    started: int | None = None
    ended: int | None = None
    failures: int = 0
    losses: int = 0
    shared: int = 0
    beside: int = 0
    vanished: int = 0
    deaths: int = 0
    interruptions: int = 0
    max_attempts: int | None = None
    max_losses: int | None = None
    timeout_ms: int | None = None
    stall_ms: int | None = None
    retention_ms: int | None = None
    unique: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    lane: DeclaredLane | None = None
    reason: str | None = None
    token: int = 0
    worker: str | None = None
    progress: str | None = None
    checkpoint: str | None = None
    result: str | None = None
    error: str | None = None
    runs: list[str] = field(default_factory=list)

    place: str = ""
    """Where it waits or rests; while it runs, the lane it came from."""
    ready_at: int = 0
    """When it came into its lane, on the clock that never goes back."""
    claim: int = 0
    """The number of the claim it was granted under."""
    cancel: str | None = None
    """Somebody asked to cancel it, for this reason."""
    unique_until: int | None = None
    settled: tuple[int, OutcomeKind] | None = None
    """The last token that was settled, and how."""
    checkpoint_number: tuple[int, int] = (0, 0)
    """Token and number of the newest checkpoint."""
    progress_number: tuple[int, int] = (0, 0)

    def move(self, event: Event) -> None:
        """Go along a row of the table of states."""
        self.state = apply(self.state, event)

    @property
    def is_suspect(self) -> bool:
        """It has deaths on its account that no checkpoint wiped out.

        The first host that vanished is not its doing, and the first death beside a likelier cause neither.
        """
        return self.losses > 0 or self.shared > 0 or self.vanished > 1 or self.beside > 1

    @property
    def met_in(self) -> Lane:
        """The lane that it waits in, or came from; the suspects' is apart from all three and counts as none of them."""
        return "long" if self.place in LONG else "solo" if self.place in SOLO else "pool"

    def needs(self) -> tuple[str, str]:
        """What a worker must be able to do."""
        return f"v:{self.v}", f"task:{self.task}"

    def record(self, queue: str) -> JobRecord:
        """The record that people read."""
        if self.state is None:
            raise AssertionError(f"{self.id} was never added")
        public = {name: getattr(self, name) for name in _PUBLIC}
        public |= {"headers": dict(self.headers), "runs": list(self.runs)}
        return JobRecord(queue=queue, cancelling=self.cancel is not None, **public)


_PUBLIC = tuple(name for name in JobRecord.__struct_fields__ if name not in ("queue", "cancelling"))


@dataclass(slots=True)
class Worker:
    """One registered worker."""

    id: str
    lease_ms: int
    end: int
    """When its lease is over, on the lease clock; below 0: closed."""
    seen: int
    can: frozenset[str]
    info: dict[str, str]
    number: int = 0
    """Of its last claim."""
    turns: int = 0
    """Its claims that had a slot to fill."""
    long_turns: int = 0
    """Those that had a long place to fill."""
    answered: int = 0
    granted: list[str] = field(default_factory=list)
    """What its last claim was granted."""
    granted_at: int = 0
    """When, on the lease clock."""
    unseen_until: int | None = None
    """When, on the lease clock, grants that nobody has answered go back."""
    holds: dict[str, Job] = field(default_factory=dict)
    gone: str | None = None
    verdict: Verdict = Verdict.VANISHED
    """What its end means for jobs that nothing else is said of."""

    def has(self, pair: Held) -> bool:
        """Whether it holds this job under this token."""
        job = self.holds.get(pair.job)
        return job is not None and job.token == pair.token


class Place:
    """Ids in order: of a number given with each, then of themselves."""

    __slots__ = ("_rows", "_scores")

    def __init__(self) -> None:
        self._rows: list[tuple[int, str]] = []
        self._scores: dict[str, int] = {}

    def add(self, id: str, score: int) -> None:
        """Put it in; it must not be there."""
        bisect.insort(self._rows, (score, id))
        self._scores[id] = score

    def remove(self, id: str) -> None:
        """Take it out; it must be there."""
        row = (self._scores.pop(id), id)
        del self._rows[bisect.bisect_left(self._rows, row)]

    def first(self, count: int) -> list[str]:
        """The first ids, as a list of their own."""
        return [name for _, name in self._rows[:count]]

    def due(self, score: int, count: int) -> list[str]:
        """The first ids whose number is not above this one."""
        return [name for number, name in self._rows[:count] if number <= score]

    @property
    def lowest(self) -> int | None:
        """The first number."""
        return self._rows[0][0] if self._rows else None

    def rows(self) -> Iterator[tuple[int, str]]:
        """All of it, in order."""
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: object) -> bool:
        return id in self._scores


class Kept(Generic[K, V]):
    """A dictionary whose entries may have a time to go."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._deadlines: dict[K, int] = {}
        self._next: list[tuple[int, int, K]] = []
        self._count = itertools.count()

    def get(self, key: K) -> V | None:
        """What is there."""
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Set it, for good."""
        self._values[key] = value
        self._deadlines.pop(key, None)

    def pop(self, key: K) -> None:
        """Remove it."""
        self._values.pop(key, None)
        self._deadlines.pop(key, None)

    def expire(self, key: K, at: int) -> None:
        """Let it go at this time."""
        self._deadlines[key] = at
        heapq.heappush(self._next, (at, next(self._count), key))

    def persist(self, key: K) -> None:
        """Keep it after all."""
        self._deadlines.pop(key, None)

    def mortal(self, key: K) -> bool:
        """Whether its time to go is set."""
        return key in self._deadlines

    def prune(self, now: int) -> list[V]:
        """Remove what had its time, and return it."""
        gone: list[V] = []
        while self._next and self._next[0][0] <= now:
            at, _, key = heapq.heappop(self._next)
            if self._deadlines.get(key) == at:
                gone.append(self._values[key])
                self.pop(key)
        return gone

    def items(self) -> list[tuple[K, V]]:
        """All of it."""
        return list(self._values.items())


@dataclass(frozen=True, slots=True)
class Question:
    """Somebody asked, at this time of the clock that never goes back, where this job's code is."""

    at: int
    worker: str
    job: str


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who has a unique key, and until when also past that job's end."""

    job: str
    until: int = 0


class Queue:
    """One queue."""

    def __init__(self, name: str, own_clock: Callable[[], int]) -> None:
        """`own_clock` (ms): by which it forgets."""
        self.name = name
        self.own_clock = own_clock
        self.clock = LeaseClock()
        self.jobs: Kept[str, Job] = Kept()
        self.unique: Kept[tuple[str, str], Claimant] = Kept()
        self.closed: Kept[str, str] = Kept()
        """Ids of workers that ended, with the reason."""
        self.places: dict[str, Place] = {name: Place() for name in (*ALL_LANES, SOON, ETA, DEAD, DONE)}
        self.workers: dict[str, Worker] = {}
        self.known: Counter[str] = Counter()
        """How many live workers know a task."""
        self.lanes: dict[str, DeclaredLane] = {}
        """What the worker that registered last says of a task."""
        self.learnt: dict[str, int] = {}
        """Until when a task is known as long, on the clock that never goes back."""
        self.asks: dict[str, Question] = {}
        """Questions without an answer."""
        self.answers: Kept[str, str] = Kept()
        self.is_announced = False
        self.is_paused = False
        self.settled = 0
        self.wakes = 0
        self.cancels: dict[str, deque[Hint]] = {}
        self._arrivals = itertools.count(1)

    # ---------------------------------------------------------------------------------------- the one way in and out

    def settle_in(self, job: Job, place: str, score: int | None = None) -> None:
        """Put a job that is nowhere into a place; without a score at its end."""
        job.place = place
        self.places.setdefault(place, Place()).add(job.id, next(self._arrivals) if score is None else score)

    def take_out(self, job: Job) -> None:
        """Take a job out of where it is; one that is not there yet is in no place."""
        if job.state is State.RUNNING:
            holder = self.workers.get(job.worker or "")
            if holder is not None:
                holder.holds.pop(job.id, None)
        elif job.state is not None:
            self.places[job.place].remove(job.id)
            if job.place.startswith("park:") and not self.places[job.place]:
                del self.places[job.place]

    def parks(self) -> list[str]:
        """What parked jobs wait for."""
        return sorted(name.removeprefix("park:") for name in self.places if name.startswith("park:"))

    # ------------------------------------------------------------------------------------------------ which lane it is

    def lane_of(self, job: Job, steady: int) -> Lane:
        """The lane of a job that is no suspect: its own word, then its task's declaration, then what was learnt."""
        return job.lane or self.lanes.get(job.task) or ("long" if self.learnt.get(job.task, 0) > steady else "pool")

    def route(self, job: Job, side: str, steady: int) -> str:
        """The place where a ready job belongs at this time; side `r`: in front, it has been running; `m`: behind."""
        if job.is_suspect:
            return "sus:r" if side == "r" else "sus"
        level = 0 if job.priority <= 0 else 5 if job.priority <= 5 else 9
        lane = self.lane_of(job, steady)
        return f"{level}:{side}" if lane == "pool" else f"{lane}:{level}:{side}"

    def long_tasks(self, steady: int) -> list[str]:
        """Tasks known as long; one declared `solo` is not, whatever was learnt."""
        learnt = {task for task, until in self.learnt.items() if until > steady and task not in self.lanes}
        return sorted(learnt | {task for task, lane in self.lanes.items() if lane == "long"})

    # ------------------------------------------------------------------------------------------------------- the rest

    def forget(self) -> None:
        """Let go what had its time."""
        now = self.own_clock()
        for job in self.jobs.prune(now):
            self.take_out(job)
        self.unique.prune(now)
        self.closed.prune(now)
        self.answers.prune(now)

    def live_workers(self) -> list[Worker]:
        """Those that are not closed."""
        return [worker for worker in self.workers.values() if worker.gone is None]

    def waiting(self, lanes: tuple[str, ...]) -> int:
        """How many jobs wait in these lanes."""
        return sum(len(self.places[lane]) for lane in lanes)

    def tell_cancel(self, hint: Hint, worker: str) -> None:
        """Leave a hint for a worker's ear; too many are not kept, since each beat says the same."""
        heard = self.cancels.setdefault(worker, deque())
        if len(heard) < MOST_CANCELS:
            heard.append(hint)
