"""G11: at every instant a job is in exactly one place, and the audit finds one that is not.

The places are what the inspector's verbs show, so they are tested here too: counts, lists and pages agree.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from stillhere.domain.job import OutcomeKind, Verdict
from stillhere.domain.states import FINAL, State
from stillhere.ports.backend import Lanes
from stillhere.ports.inspector import Queues
from tests.conformance.doors import Door
from tests.conformance.kit import HOUR, LEASE, MINUTE, SECOND, Worker, World, ids

DAMAGES = ["nowhere", "twice", "wrong_place", "orphan_entry", "limbo_entry", "no_owner", "ttl_on_live", "unique"]


@pytest.mark.parametrize("kind", DAMAGES)
def test_g11_the_audit_finds_what_is_broken(world: World, door: Door, kind: str) -> None:
    if kind not in door.damages:
        pytest.skip("this store cannot be broken so")
    worker = world.worker()
    world.enqueue("running", unique="u")
    world.enqueue("ended")
    _, ended = worker.take()
    worker.settle(ended)
    world.enqueue("scheduled", delay_ms=HOUR)
    world.enqueue("ready")
    assert world.audit() == []
    door.damages[kind]()
    assert kind in {complaint.kind for complaint in world.audit()}
    world.sound = False


def test_g11_an_empty_queue_is_sound(world: World) -> None:
    assert world.audit() == []
    status = world.status()
    assert (status.queue, status.ready, status.running, status.scheduled, status.dead) == ("q", 0, 0, 0, 0)
    assert (status.workers, status.paused, status.oldest_ready_ms, status.settled) == (0, False, None, 0)
    assert (world.jobs().jobs, world.jobs().after, world.workers()) == ([], None, {})


@pytest.mark.parametrize("seed", range(6))
def test_g11_a_long_random_story_is_sound_after_every_step(world: World, seed: int) -> None:
    """Workers come, hold, forget, die and are late; clocks step; at no step is a job nowhere or twice."""
    story = Story(world, random.Random(seed))
    for step in range(100):
        story.step()
        assert world.audit() == [], f"after step {step}"
        story.assert_ends_are_ends()
    story.finish()


class Story:
    """Chance, with a memory of what must not have changed: what ended stays ended."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.workers = [world.worker(f"w{i}", lease=dice.choice([3 * SECOND, LEASE])) for i in range(3)]
        self.closed: list[Worker] = []
        self.sent = 0
        self.ended: dict[str, State] = {}

    def step(self) -> None:
        self.dice.choice([self.send, self.work, self.work, self.work, self.lose, self.wait, self.administer])()

    def send(self) -> None:
        for _ in range(self.dice.randint(1, 5)):
            self.sent += 1
            options: dict[str, object] = {"priority": self.dice.randint(0, 9)}
            options["lane"] = self.dice.choice([None, None, None, "long", "solo"])
            if self.dice.random() < 0.3:
                options["delay_ms"] = self.dice.randint(1, 30) * SECOND
            if self.dice.random() < 0.3:
                options |= {"unique": self.dice.choice("uvw"), "on_conflict": self.dice.choice(["replace", "existing"])}
            self.world.enqueue(f"j{self.sent}", task=self.dice.choice(["t", "t", "t", "strange"]), **options)

    def work(self) -> None:
        worker = self.dice.choice(self.workers)
        if self.dice.random() < 0.1:
            self.world.lengthen(self.dice.choice(["t", "strange"]))
        lanes: Lanes = self.dice.choice(["pool", "both", "solo"])
        reply = worker.claim(self.dice.randint(0, 4), lanes, long=self.dice.randint(0, 2))
        if reply.standing != "ok":
            worker.beat()
            return
        if self.dice.random() < 0.2:
            return  # the reply is lost
        worker.answered = worker.n
        for grant in reply.jobs:
            chance = self.dice.random()
            if chance < 0.7:
                worker.settle(grant, self.dice.choice(list(OutcomeKind)), delay_ms=self.dice.choice([0, 1, 9 * SECOND]))
            elif chance < 0.8:
                worker.checkpoint(grant, 1, str(grant.token))
        if self.dice.random() < 0.3:
            worker.beat(*reply.jobs)

    def lose(self) -> None:
        worker = self.workers.pop(self.dice.randrange(len(self.workers)))
        worker.end(self.dice.choice(list(Verdict)), limit=self.dice.choice([1, 100]))
        self.closed.append(worker)
        self.workers.append(self.world.worker(f"next{len(self.closed)}"))

    def wait(self) -> None:
        if self.dice.random() < 0.3:
            self.world.jump(self.dice.choice([-HOUR, -SECOND, SECOND, HOUR]))
        else:
            self.world.run(self.dice.randint(1, 10) * SECOND)
        for late in self.dice.sample(self.closed, min(2, len(self.closed))):
            late.claim()
            late.beat()
        self.world.recover(limit=2)

    def administer(self) -> None:
        job = f"j{self.dice.randint(1, max(1, self.sent))}"
        self.dice.choice([self.world.cancel, self.world.retry, self.world.purge])(job)  # type: ignore[operator]  # any

    def assert_ends_are_ends(self) -> None:
        """What has succeeded or was cancelled stays so; a dead letter can be revived, and purged."""
        for number in range(1, self.sent + 1):
            record = self.world.find(f"j{number}")
            before = self.ended.get(f"j{number}")
            if before:
                assert record is not None
                assert record.state is before
            elif record and record.state in FINAL - {State.DEAD}:
                self.ended[record.id] = record.state

    def finish(self) -> None:
        """Whatever had happened: with a worker that knows everything, all of it ends."""
        last = self.world.worker("last", tasks=("t", "strange"))
        for _ in range(300):
            self.world.run(10 * SECOND, last)
            self.world.recover()
            grants = last.take(20, "both", long=20) + last.take(1, "solo")
            for grant in grants:
                last.settle(grant)
            status = self.world.status()
            if not (status.ready or status.running or status.scheduled):
                break
        records = [self.world.find(f"j{number}") for number in range(1, self.sent + 1)]
        assert {record.state for record in records if record} <= FINAL


# ----------------------------------------------------------------------------------------- what the inspector shows


def test_g11_counts_lists_and_records_agree(world: World) -> None:
    worker = world.worker()
    world.enqueue_many(f"j{i:02}" for i in range(12))
    grants = worker.take(9)
    for grant, kind in zip(grants, OutcomeKind, strict=False):
        worker.settle(grant, kind, delay_ms=HOUR)
    world.enqueue("wall", due=world.now + HOUR)
    world.enqueue("cancelled")
    world.cancel("cancelled")
    every = world.jobs(limit=100).jobs
    assert len({record.id for record in every}) == len(every) == 14
    assert all(record == world.look(record.id) for record in every)
    counts = Counter(record.state for record in every)
    status = world.status()
    assert (status.ready, status.running) == (counts[State.READY], counts[State.RUNNING]) == (4, 3)
    assert (status.scheduled, status.dead) == (counts[State.SCHEDULED], counts[State.DEAD]) == (3, 1)
    assert (counts[State.SUCCEEDED], counts[State.CANCELLED], status.settled) == (1, 2, 6)
    for state in State:
        assert {record.id for record in world.jobs(state=state).jobs} == {
            record.id for record in every if record.state is state
        }


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_g11_pages_lead_to_every_job_once(world: World, limit: int) -> None:
    worker = world.worker()
    jobs = world.enqueue_many((f"j{i:03}" for i in range(20)), priority=0)
    jobs += world.enqueue_many((f"l{i:03}" for i in range(20)), priority=9)
    jobs += world.enqueue_many((f"d{i:03}" for i in range(10)), delay_ms=HOUR)
    for grant in worker.take(15):
        if int(grant.id[1:]) % 3 == 0:
            worker.settle(grant, OutcomeKind.DEAD)
        elif int(grant.id[1:]) % 3 == 1:
            worker.settle(grant)
    found: list[str] = []
    page = world.jobs(limit=limit)
    found += [record.id for record in page.jobs]
    while page.after is not None:
        page = world.jobs(limit=limit, after=page.after)
        assert len(page.jobs) <= limit
        found += [record.id for record in page.jobs]
    assert sorted(found) == sorted(jobs)


def test_g11_filters_are_joined_by_and(world: World) -> None:
    worker = world.worker("w", tasks=("t", "u"))
    world.enqueue("aaa1", task="t")
    world.enqueue("aab1", task="u")
    world.run(MINUTE, worker)
    one, _ = worker.take()
    worker.settle(one, OutcomeKind.DEAD, error='{"message":"disk [full]"}')
    world.enqueue("aac1", task="t")

    def found(**filters: object) -> list[str]:
        return sorted(record.id for record in world.jobs(**filters).jobs)

    assert found(task="t") == ["aaa1", "aac1"]
    assert found(task="t", state=State.READY) == ["aac1"]
    assert found(worker="w") == ["aab1"]
    assert found(error_text="[full]") == ["aaa1"]
    assert found(id_tail="b1") == ["aab1"]
    assert found(id_tail="aac1") == ["aac1"]
    assert found(older_than_ms=MINUTE) == ["aaa1", "aab1"]
    assert found(older_than_ms=MINUTE, state=State.RUNNING, worker="w") == ["aab1"]
    assert found(task="nothing") == []


def test_g11_the_oldest_ready_job_tells_how_far_behind_the_queue_is(world: World) -> None:
    world.enqueue("a")
    world.run(MINUTE)
    world.enqueue("b", priority=0)
    assert world.status().oldest_ready_ms == MINUTE
    worker = world.worker()
    assert ids(worker.take(1)) == ["b"]
    assert ids(worker.take(1)) == ["a"]
    assert world.status().oldest_ready_ms is None


def test_g11_queues_are_known_by_name(world: World) -> None:
    world.beside("b").enqueue("x")
    world.beside("a").worker("w")
    world.enqueue("y")
    assert world.call(Queues(queue="")) == ["a", "b", "q"]
