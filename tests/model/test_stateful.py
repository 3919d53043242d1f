"""Any story of verbs, told to the reference in memory and to a real server: both answer the same, and both stay sound.

Producers, workers and supervisors at once, clocks that step an hour either way, replies that get lost, requests that
come again when they are long out of date. What is written down of the workers here (the grants they know of, the number
of their claim) is what real ones know, so that most of what they say is apt; the rest is noise on purpose.

Hypothesis draws which step follows which, and a seed for each; the step itself chooses with that seed. So a failing
story is cut down to the few steps that it takes, and what the steps do is as varied as plain chance makes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from stillhere.backends.redis.scripts import Mutate
from stillhere.domain.job import DeclaredLane, Grant, NewRecord, OnConflict, Outcome, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import (
    Beat,
    Cancel,
    Checkpoint,
    Claim,
    End,
    Enqueue,
    Held,
    Lanes,
    Lengthen,
    Look,
    Progress,
    ProgressItem,
    Register,
    Renew,
    Retry,
    Settle,
    Sweep,
    Tick,
)
from stillhere.ports.inspector import Answer, Answered, Ask, Jobs, Pause, Purge
from tests.model.pair import QUEUE, Pair
from tests.support.servers import RedisServer

EXAMPLES = int(os.environ.get("STATEFUL_EXAMPLES", "25"))
STEPS = 40
LONG_STORIES = int(os.environ.get("LONG_STORIES", "6"))
LONG_STEPS = 300
HOUR_MS = 3_600_000
WORKERS = 3
"""So many at a time; one that is closed is followed by another under a new id."""
EVER = 1 << 50
LANES: list[Lanes] = ["pool", "pool", "both", "both", "solo"]
DECLARED: list[dict[str, DeclaredLane]] = [{}, {}, {"b": "long"}, {"b": "solo", "rare": "long"}]
CONFLICTS: list[OnConflict] = ["existing", "replace", "raise"]
SEEDS = st.integers(0, 2**32)


def new_record(r: Random, number: int) -> NewRecord:
    """A job of any kind; now and then under an id, or a unique key, that was used before."""
    return NewRecord(
        id=r.choice([*[f"new-{number}"] * 4, f"job-{r.randrange(4)}"]),
        task=r.choice(["a", "a", "a", "b", "rare"]),
        queue=QUEUE,
        args=r.choice(["{}", '{"x": "é/\\u2028"}']),
        priority=r.choice([5, 5, 0, 9, 3, 7]),
        delay_ms=r.choice([None, None, None, None, 0, 900, 20_000]),
        unique=r.choice([None, None, None, None, "k", "ü"]),
        unique_for_ms=r.choice([None, 5_000, 2 * HOUR_MS]),
        on_conflict=r.choice(CONFLICTS),
        max_attempts=r.choice([None, 3]),
        max_losses=r.choice([None, 0, 1]),
        retention_ms=r.choice([None, 0, 2 * HOUR_MS]),
        headers=r.choice([{}, {"trace": "1/ä"}]),
        lane=r.choice([None, None, None, None, "long", "solo"]),
    )


def outcome_of(r: Random, grant: Grant) -> Outcome:
    """Any end of this run."""
    return Outcome(
        job=grant.id,
        token=grant.token,
        kind=r.choice(list(OutcomeKind)),
        result=r.choice([None, "1", '""']),
        error=r.choice([None, '{"type":"E"}']),
        reason=r.choice([None, "why"]),
        delay_ms=r.choice([0, 500, 10_000]),
        retention_ms=r.choice([0, HOUR_MS]),
    )


def seldom(r: Random) -> bool:
    """One time in five."""
    return r.randrange(5) == 0


@dataclass
class Place:
    """What a worker knows of itself."""

    id: str
    n: int = 0
    answered: int = 0
    held: list[Grant] = field(default_factory=list)


class Story(RuleBasedStateMachine):
    """The machine that Hypothesis drives; `url` is set by the test."""

    url = ""
    mutate: Mutate | None = None

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.url, type(self).mutate)
        self.places: list[Place] = []
        self.workers = self.enqueued = 0
        self.lease_clock = 0
        """As the last tick told it."""
        self.grants: list[tuple[str, Grant]] = []
        """Every grant that anybody ever saw, with its worker."""
        self.jobs: set[str] = set()

    def teardown(self) -> None:
        self.pair.close()

    @invariant()
    def same(self) -> None:
        if self.pair.said:
            self.pair.compare(sorted(self.jobs))

    # Hypothesis leaves whole rules out of some stories, so they are few, and the work of workers has two.

    @initialize(seed=SEEDS)
    def open(self, seed: int) -> None:
        """Work and workers, or nothing would happen in many a story."""
        r = Random(seed)
        self.enqueue(r, 6)
        for _ in range(WORKERS):
            self.places.append(self._newcomer(r))
        self.claim(r)

    @rule(seed=SEEDS)
    def produce(self, seed: int) -> None:
        self._one_of(seed, self.enqueue, self.enqueue, self.enqueue_at, self.cancel, self.retry, self.retry, self.purge)

    @rule(seed=SEEDS)
    def work(self, seed: int) -> None:
        steps = (self.claim, self.settle, self.beat, self.checkpoint, self.progress, self.lengthen)
        self._one_of(seed, self.claim, *steps)

    @rule(seed=SEEDS)
    def live_and_die(self, seed: int) -> None:
        self._one_of(seed, self.claim, self.claim, self.claim, self.settle, self.end, self.end)

    @rule(seed=SEEDS)
    def supervise(self, seed: int) -> None:
        self._one_of(seed, self.sweep, self.renew, self.tick, self.pass_time, self.ask, self.answer)

    @rule(seed=SEEDS)
    def meddle(self, seed: int) -> None:
        self._one_of(seed, self.again, self.again, self.again, self.step_clock, self.pause, self.join, self.list_jobs)

    @staticmethod
    def _one_of(seed: int, *steps: Callable[[Random], None]) -> None:
        r = Random(seed)
        r.choice(steps)(r)

    # ------------------------------------------------------------------------------------------------- producers

    def _new(self, r: Random) -> NewRecord:
        self.enqueued += 1
        new = new_record(r, self.enqueued)
        self.jobs.add(new.id)
        return new

    def enqueue(self, r: Random, count: int = 0) -> None:
        self.pair.call(Enqueue(queue=QUEUE, jobs=[self._new(r) for _ in range(count or r.randint(1, 4))]))

    def enqueue_at(self, r: Random) -> None:
        due = self.pair.now + r.choice([-5_000, 0, 400, 5_000, HOUR_MS])
        self.pair.call(Enqueue(queue=QUEUE, jobs=[msgspec.structs.replace(self._new(r), delay_ms=None, due=due)]))

    def _job(self, r: Random, *states: State) -> str:
        """One in this state, or any, or one that never was."""
        jobs = sorted(self.jobs)
        records = [self.pair.model.call(Look(queue=QUEUE, job=job)) for job in jobs]
        apt = [record.id for record in records if record is not None and record.state in states]
        return r.choice(apt if apt and not seldom(r) else [*jobs, "never"])

    def cancel(self, r: Random) -> None:
        job = self._job(r, r.choice([State.RUNNING, State.READY, State.SCHEDULED]))
        keep = r.choice([None, 0, 2 * HOUR_MS])
        self.pair.call(Cancel(queue=QUEUE, job=job, reason=r.choice(["no more", ""]), retention_ms=keep))

    def retry(self, r: Random) -> None:
        self.pair.call(Retry(queue=QUEUE, job=self._job(r, r.choice([State.DEAD, State.DEAD, State.SCHEDULED]))))

    def purge(self, r: Random) -> None:
        self.pair.call(Purge(queue=QUEUE, job=self._job(r, State.DEAD)))

    # --------------------------------------------------------------------------------------------------- workers

    def _newcomer(self, r: Random) -> Place:
        self.workers += 1
        self._register(r, f"w{self.workers}")
        return Place(f"w{self.workers}")

    def _register(self, r: Random, worker: str) -> None:
        verb = Register(
            queue=QUEUE,
            worker=worker,
            lease_ms=r.choice([10_000, 30_000, 30_000, 500]),
            tasks=r.choice([("a", "b"), ("a", "b"), ("a",), ("a", "b", "rare"), ()]),
            record_version=r.choice([1, 1, 2, 0]),
            lanes=r.choice(DECLARED),
            info=r.choice([{}, {"host": "h"}]),
        )
        self.pair.call(verb)

    def join(self, r: Random) -> None:
        """A place is left for good: what its worker holds waits for a sweep. Or it registers a second time."""
        at = r.randrange(WORKERS)
        if seldom(r):
            self._register(r, self.places[at].id)
        else:
            self.places[at] = self._newcomer(r)

    def _follow(self, r: Random, worker: str) -> None:
        """Somebody else takes the place of a worker that is closed."""
        self.places = [self._newcomer(r) if place.id == worker else place for place in self.places]

    def claim(self, r: Random) -> None:
        place = r.choice(self.places)
        n = max(1, place.n + r.choice([1, 1, 1, 1, 0, -1, 7]))
        reply = self.pair.call(
            Claim(
                queue=QUEUE,
                worker=place.id,
                n=n,
                slots=r.choice([1, 2, 3, 5, 0]),
                long=r.choice([0, 1, 1, 2]),
                lanes=r.choice(LANES),
            )
        )
        if reply.standing == "gone":
            self._follow(r, place.id)
        if reply.standing != "ok":
            return
        place.n = n
        if not seldom(r):  # else the reply is lost
            place.answered = n
            place.held += [grant for grant in reply.jobs if grant not in place.held]
            self.grants += [(place.id, grant) for grant in reply.jobs]

    def beat(self, r: Random) -> None:
        place = r.choice(self.places)
        known = place.held[1:] if seldom(r) else place.held
        held = [Held(grant.id, grant.token) for grant in known]
        if seldom(r):
            held += [Held(grant.id, grant.token + number) for number, (_, grant) in enumerate(self.grants[-2:])]
        answered = max(0, place.answered - r.choice([0, 0, 1]))
        lease_ms = 5_000 if seldom(r) else None
        reply = self.pair.call(Beat(queue=QUEUE, worker=place.id, answered=answered, held=held, lease_ms=lease_ms))
        lost = {(pair.job, pair.token) for pair in reply.lost}
        place.held = [grant for grant in known if (grant.id, grant.token) not in lost]
        if reply.standing == "gone":
            self._follow(r, place.id)

    def _run(self, r: Random) -> tuple[str, Grant] | None:
        """One that goes on; now and then any that ever was, best of a job that runs again."""
        held = [(place.id, grant) for place in self.places for grant in place.held]
        from_these = held
        if not held or r.randrange(3) == 0:
            tokens = {(worker, grant.id): grant.token for worker, grant in held}
            from_these = [(who, grant) for who, grant in self.grants if tokens.get((who, grant.id), 0) > grant.token]
            from_these = from_these or self.grants
        return r.choice(from_these) if from_these else None

    def settle(self, r: Random) -> None:
        chosen = [run for _ in range(r.randint(1, 3)) if (run := self._run(r))]
        for worker in dict.fromkeys(worker for worker, _ in chosen):
            outcomes = [outcome_of(r, grant) for who, grant in chosen if who == worker]
            self.pair.call(Settle(queue=QUEUE, worker=worker, outcomes=outcomes))
        done = {(grant.id, grant.token) for _, grant in chosen}
        for place in self.places:
            place.held = [grant for grant in place.held if (grant.id, grant.token) not in done]

    def checkpoint(self, r: Random) -> None:
        if run := self._run(r):
            worker, grant = run
            number, value = r.randint(1, 3), r.choice(["1", "2", '"ä"'])
            self.pair.call(
                Checkpoint(queue=QUEUE, worker=worker, job=grant.id, token=grant.token, number=number, value=value)
            )

    def progress(self, r: Random) -> None:
        if run := self._run(r):
            worker, grant = run
            value = r.choice(["{}", '{"done": 1} ', "{ }"])
            item = ProgressItem(job=grant.id, token=grant.token, number=r.randint(1, 3), value=value)
            self.pair.call(Progress(queue=QUEUE, worker=worker, items=[item, item]))

    def lengthen(self, r: Random) -> None:
        self.pair.call(Lengthen(queue=QUEUE, task=r.choice(["a", "b"])))

    # ----------------------------------------------------------------------------------------------- supervisors

    def renew(self, r: Random) -> None:
        place = r.choice(self.places)
        answered = max(0, place.answered - r.choice([0, 0, 1]))
        hand_back = r.choice([0, self.lease_clock, EVER])
        self.pair.call(Renew(queue=QUEUE, worker=place.id, answered=answered, hand_back=hand_back))

    def _tick(self, ms: int) -> None:
        self.pair.now += ms
        self.lease_clock = self.pair.call(Tick(queue=QUEUE), keep=False).lease_clock

    def tick(self, r: Random) -> None:
        self._tick(r.choice([0, 1, 40, 900, 2_500]))

    def pass_time(self, r: Random) -> None:
        """Long enough, with somebody there, for leases to end."""
        for _ in range(r.randint(1, 20)):
            self._tick(2_000)

    def sweep(self, r: Random) -> None:
        default, limit = r.choice(list(Verdict)), r.choice([1, 2, 100])
        for worker in self.pair.call(Sweep(queue=QUEUE, limit=r.choice([1, 20]))).over:
            self._end_whole(r, End(queue=QUEUE, worker=worker, reason="over", default=default, limit=limit))

    def end(self, r: Random) -> None:
        place = r.choice(self.places)
        verb = End(
            queue=QUEUE,
            worker=place.id,
            reason=r.choice(['SIGKILL "9"/1', ""]),
            force=not seldom(r),
            default=r.choice(list(Verdict)),
            verdicts={grant.id: r.choice(list(Verdict)) for grant in place.held if seldom(r)},
            details={grant.id: 'File "a/b.py"\n\tin f: é' for grant in place.held if seldom(r)},
            limit=r.choice([1, 2, 100]),
        )
        if seldom(r):  # the caller dies after one call
            self.pair.call(verb)
        else:
            self._end_whole(r, verb)

    def _end_whole(self, r: Random, verb: End) -> None:
        while (reply := self.pair.call(verb)).status == "more":
            pass
        if reply.status == "ended":
            self._follow(r, verb.worker)

    def ask(self, r: Random) -> None:
        self.pair.call(Ask(queue=QUEUE, id=f"ask-{r.randrange(6)}", job=self._job(r, State.RUNNING)))

    def answer(self, r: Random) -> None:
        """As the last tick's, or one that nobody asked."""
        asked = self.pair.call(Tick(queue=QUEUE)).asks
        names = [one.id for one in asked if not seldom(r)] or ["ask-0"]
        self.pair.call(Answer(queue=QUEUE, id=r.choice(names), text=r.choice(["at line 7", "ä" * 40_000, ""])))
        self.pair.call(Answered(queue=QUEUE, id=r.choice(["ask-0", *names])))

    # ----------------------------------------------------------------------------------------------------- noise

    def again(self, r: Random) -> None:
        """An earlier request comes once more: just now, or long out of date."""
        self.pair.call(r.choice(self.pair.sent[-8:] if seldom(r) else self.pair.sent), keep=False)

    def step_clock(self, r: Random) -> None:
        self.pair.now += r.choice([HOUR_MS, -HOUR_MS])

    def pause(self, r: Random) -> None:
        self.pair.call(Pause(queue=QUEUE, paused=seldom(r)), keep=False)

    def list_jobs(self, r: Random) -> None:
        self.pair.listing(
            Jobs(
                queue=QUEUE,
                state=r.choice([None, State.READY, State.RUNNING, State.SCHEDULED, State.DEAD]),
                task=r.choice([None, "a"]),
                worker=r.choice([None, None, r.choice(self.places).id]),
                id_tail=r.choice([None, None, "1", "job-1"]),
                older_than_ms=r.choice([None, 5_000]),
                error_text=r.choice([None, None, "WorkerLost"]),
                limit=3,
            )
        )


@pytest.fixture(scope="module", params=["valkey", "redis62"])
def told(request: pytest.FixtureRequest) -> type[Story]:
    """The machine, on a server."""
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, RedisServer)
    return type("Told", (Story,), {"url": server.url})


def test_g12_the_reference_and_a_server_answer_the_same(told: type[Story]) -> None:
    run_state_machine_as_test(told, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))


def tell(story: Story, seed: int, steps: int) -> None:
    """A long story by plain chance: budgets are spent, suspects run apart, old requests are very old."""
    r = Random(seed)
    rules = [
        story.produce,
        story.produce,
        story.work,
        story.work,
        story.live_and_die,
        story.live_and_die,
        story.supervise,
    ]
    try:
        story.open(seed)
        for number in range(1, steps + 1):
            r.choice([*rules, story.meddle])(r.getrandbits(32))
            if number % 5 == 0:
                story.same()
    finally:
        story.teardown()


@pytest.mark.parametrize("seed", range(LONG_STORIES))
def test_g12_they_do_so_through_a_long_story(told: type[Story], seed: int) -> None:
    tell(told(), seed, LONG_STEPS)


def tell_many(told: type[Story], stories: int) -> None:
    for seed in range(stories):
        tell(told(), seed, LONG_STEPS)


BREAKS = {
    "a token may be granted twice": ("claim", "int(j.token) + 1, micros", "int(j.token), micros"),
    "a late claim is served": ("claim", "if n < me.cn then", "if false then"),
    "a late beat takes an answer back": ("beat", "me.conf = math.max(me.conf, answered)", "me.conf = answered"),
    "a stale settle counts": ("settle", "int(j.token) ~= outcome.token or", ""),
    "a cancel is forgotten": ("end", "if j._cancel then", "if false then"),
    "suspects run with the rest": ("end", "if is_suspect(j) then return", "if false then return"),
    "a checkpoint wipes nothing": ("checkpoint", "value ~= j.checkpoint", "false"),
    "a retry keeps its budget spent": ("retry", "'failures', 'losses'", "'failures'"),
    "an end gives a grant back that was seen": ("end", "int(j._cn) > me.conf", "int(j._cn) >= me.conf"),
    "the long run with the short": ("claim", "learnt[j.task] and 'long'", "false"),
    "a declaration is believed for ever": ("register", "call('HDEL', key('lanes'), task)", ""),
    "each death beside another sets apart": ("end", "int(j.beside) > 1", "int(j.beside) > 0"),
    "a job comes due late": ("claim", "promote('soon', steady)", "promote('soon', steady - 1000)"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_script_is_noticed(valkey_server: RedisServer, name: str) -> None:
    stem, old, new = BREAKS[name]
    changed: set[str] = set()

    def mutate(of: str, text: str) -> str:
        if of == stem and old in text:
            changed.add(of)
            return text.replace(old, new)
        return text

    broken = type("Broken", (Story,), {"url": valkey_server.url, "mutate": staticmethod(mutate)})
    with pytest.raises(AssertionError, match="server "):
        tell_many(broken, 60)
    assert changed, "the script does not read so any more"
